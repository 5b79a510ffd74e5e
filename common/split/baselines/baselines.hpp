// How published planners cut a chain of layers; those that choose replicas too do so in common/split/replicas.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/split/replicas.hpp"
#include "common/split/split.hpp"

namespace plumb {

// What they weigh. Blocks are the embedding, the layers and the head: layers + 2 entries.
struct CutProblem {
  std::vector<Seconds> forward;          // of one microbatch
  std::vector<Seconds> backward;         // recompute included
  std::vector<std::int64_t> parameters;  // by block
  std::vector<Seconds> messages;         // between stage s and s + 1, one way: stages − 1 entries
  std::int64_t microbatches = 1;

  [[nodiscard]] int blocks() const { return static_cast<int>(forward.size()); }
  [[nodiscard]] int stages() const { return static_cast<int>(messages.size()) + 1; }
};

// Every split has at least one block a stage. All throw InputError (where = "split") for lists that do not fit
// together, and for more stages than layers.

// Megatron-LM: as many layers on each stage; InputError where the stages do not divide them (arXiv 2104.04473).
[[nodiscard]] Split megatron_even_split(const CutProblem& problem);

// Megatron-LM's habit for heavy ends (--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers): fewer
// layers on the first, the last or both stages, as many on each of the others. Of all such splits the one whose slowest
// stage is the fastest, then the shorter first stage. InputError for fewer than three stages, and where none exists.
[[nodiscard]] Split megatron_first_last_split(const CutProblem& problem);
// DeepSpeed's `uniform` and `parameters` (arXiv 1910.02054): as uniform_split and parameter_split.
[[nodiscard]] Split deepspeed_uniform_split(const CutProblem& problem);
[[nodiscard]] Split deepspeed_parameters_split(const CutProblem& problem);
// torchgpipe's balance by time (arXiv 2004.09910), after Bárány and Grinberg (arXiv 1308.2452).
[[nodiscard]] Split torchgpipe_split(const CutProblem& problem);
// PipeDream (arXiv 1806.03377, section 3.2) with one worker a stage.
[[nodiscard]] Split pipedream_split(const CutProblem& problem);
// DAPPLE (arXiv 2007.01045, section 4) without replicas.
[[nodiscard]] Split dapple_split(const CutProblem& problem);
// Alpa's inter-operator pass (arXiv 2201.12023, section 5) on equal meshes that are given.
[[nodiscard]] Split alpa_split(const CutProblem& problem);

struct Baseline {
  std::string name;  // "pipedream"
  std::function<Split(const CutProblem&)> split;
  // Of one that chooses how many devices each stage has.
  std::function<std::vector<ReplicaSplit>(const ReplicaProblem&)> replicas = {};
};
[[nodiscard]] const std::vector<Baseline>& baselines();
// Throws InputError (where = "--baseline") with a did-you-mean.
[[nodiscard]] const Baseline& find_baseline(const std::string& name);

}  // namespace plumb
