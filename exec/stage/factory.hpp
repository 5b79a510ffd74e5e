// What the programs ask of the stages on LibTorch; LibTorch itself stays behind it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

class Device;             // exec/device/device.hpp
class PretrainedWeights;  // exec/data/pretrained_weights.hpp

struct StageOptions {
  std::filesystem::path data;  // text to train on; empty: texts that every Debian has
  bool deterministic = false;  // only operations whose result does not depend on timing
  std::string device = "cpu";  // as Device::name says
  // Of all ranks, for stages that a tensor group shares out, or data-parallel ranks: it must outlive them. How long
  // these wait for each other.
  Transport* transport = nullptr;
  Device* streams = nullptr;  // on whose streams these move what they share; null: from host to host
  Seconds patience{60};
  bool logs_routing = false;
  std::shared_ptr<const PretrainedWeights> weights = {};  // to begin with; null: drawn from the seed
};

// On a thread whose results must be those of the ranks by bits: one intra-op thread, as each rank has, and backwards on
// it, on a device too, where LibTorch would take another thread. A thread that has computed before keeps its number of
// threads otherwise, whatever others set later, and more of them share out the sums of a product in another way.
void compute_on_one_thread();

// On the thread of a rank, before anything else there: the same, and what it allocates counts as its rank's.
void begin_rank_thread(int rank);

// The sequences that a plan trains on, with LibTorch set up as the options say. Throws as make_stages does.
class Corpus;
[[nodiscard]] std::shared_ptr<const Corpus> corpus_of(const Plan& plan, const StageOptions& options);

// From now on, what this thread allocates counts as `rank`'s.
void count_memory_as(int rank);

// Of a rank of the plan's layout, by stage_slot; null where another rank holds the stage. Throws InputError, naming
// layer or file, for layer kinds that are not executed and data shorter than one sequence.
[[nodiscard]] std::vector<std::unique_ptr<Stage>> make_stages(const Plan& plan, int rank, const StageOptions& options);

// By global name, fp32, of the step that ended last; a tied table has one entry. Where ranks share out the optimizer's
// states, the rank's part of each. Only for stages of make_stages.
using NamedGradients = std::map<std::string, std::vector<float>>;
[[nodiscard]] NamedGradients gradients(const std::vector<std::unique_ptr<Stage>>& stages);

// Weights as they stand, by global name, fp32, or where ranks share these out the rank's part of each. Only for stages
// of make_stages.
[[nodiscard]] NamedGradients kept_weights(const std::vector<std::unique_ptr<Stage>>& stages);
// Where LoRA has put an adapter beside a matrix, adds it: W + alpha / rank · B · A (arXiv 2106.09685, equation 3), in
// fp32; A and B stay. `weights`: whole ones, all of the plan's.
void merge_adapters(const Plan& plan, NamedGradients& weights);

// Which experts each token of the last step chose, of each layer and microbatch of the whole batch by `routing_name`,
// [tokens, top_k]. Only for stages of make_stages with logs_routing.
[[nodiscard]] NamedGradients chosen_experts(const std::vector<std::unique_ptr<Stage>>& stages);
[[nodiscard]] std::string routing_name(std::int64_t layer, int microbatch);

// Memory that LibTorch reports. A buffer counts as its allocating rank's until `memory_moved` says that it was handed
// over; data it does not know are ignored.
[[nodiscard]] Payload allocate_payload(std::size_t bytes);  // on the rank's thread
void memory_moved(const std::byte* data, int to_rank);
[[nodiscard]] Bytes held_bytes(int rank);
[[nodiscard]] Bytes peak_bytes(int rank);  // since the last reset
void reset_peak(int rank);

}  // namespace plumb::exec
