// Cuts of a chain of blocks into stages that have several devices each: replicas that divide every microbatch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/split/split.hpp"

namespace plumb {

// What planners of replicated stages weigh. Blocks are the embedding, the layers and the head: layers + 2 entries.
struct ReplicaProblem {
  int devices = 1;                             // all of them are used
  int most_stages = 1;                         // no more than layers
  std::int64_t microbatches = 1;               // of a step
  std::vector<int> degrees = {};               // replicas that a stage may have, ascending
  std::optional<int> widest = {};              // of these, which some stage must have
  std::vector<std::vector<Seconds>> forward;   // by degree and block: of one replica's share of a microbatch
  std::vector<std::vector<Seconds>> backward;  // recompute included
  std::vector<std::vector<Bytes>> kept = {};   // of one microbatch; empty, this and the next: no limit
  std::vector<Bytes> fixed = {};               // by block: weights, gradients, states
  // While a stage of the blocks [first, last) on so many replicas works on a microbatch, beside what it keeps; none:
  // nothing.
  std::function<Bytes(int degree, int first, int last)> working = {};
  Bytes memory = {};                  // of a device
  std::vector<Bytes> gradients = {};  // by block
  // Of so many gradients over so many replicas, once a step; of one microbatch between stages of so many replicas, one
  // way.
  std::function<Seconds(int degree, Bytes gradients)> reduction = {};
  std::function<Seconds(int from_degree, int to_degree)> message = {};
};

struct ReplicaSplit {
  Split split = {};
  std::vector<int> degrees = {};  // by stage
  Seconds time = {};              // what the planner thinks it takes: of a step, or of a microbatch
  bool operator==(const ReplicaSplit&) const = default;
};

// Each planner's best for every number of stages that has one, ascending; of equal ones the smaller degrees and longer
// stages first. Exact: Pareto-optimal pairs of the two numbers that a suffix of stages is weighed by, over all
// suffixes, their first degree, and the devices that they use. O(stages · blocks² · devices · degrees) pairs. All throw
// InputError (where = "split") for lists that do not fit together.

// DAPPLE, arXiv 2007.01045, section 4.1, equations 1 to 5, with the pivot that makes the step longest (as
// dapple_split), messages as stages of their own, and M microbatches of which every replica takes its share: from the
// last stage on
//   P_s = F_s + B_s + max((M − 1)(F_s + B_s), P_{s+1}),  E_s = max(P_s + AR_s, F_s + E_{s+1}):
// P until the stage's last backward, E until its and all later stages' gradients are reduced. A stage holds as many
// microbatches as there are stages from it on, in 1F1B; what does not fit is left out.
[[nodiscard]] std::vector<ReplicaSplit> dapple_replicas(const ReplicaProblem& problem);

// PipeDream, arXiv 1806.03377, section 3.2: the least slowest stage or link,
//   A(j, m) = min over k, m' of max(A(k, m − m'), 2 C(k), T(k + 1 … j, m')),  T = (Σ compute + sync(m')) / m'.
// `forward` and `backward` of m' replicas are here an m'-th of what one takes, and `reduction` is what synchronising
// takes of each microbatch's m'-th. Of equally slow ones, of which there are many, one whose stages take short
// together.
[[nodiscard]] std::vector<ReplicaSplit> pipedream_replicas(const ReplicaProblem& problem);

// Alpa's inter-operator pass, arXiv 2201.12023, section 5.2: the least Σ t + (B − 1) · max t over stages on submeshes,
// whose operators are data-parallel here; messages between stages are left out there. A stage's memory counts as
// DAPPLE's.
[[nodiscard]] std::vector<ReplicaSplit> alpa_replicas(const ReplicaProblem& problem);

}  // namespace plumb
