// The graph of all ranks of a layout whose stages have different data degrees, from that of one rank per stage.
#pragma once

#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/graph/evaluate.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// What a folded node stands for: an action of one rank, a part of a message, or the reduction of one group.
struct NodeCopy {
  int rank = 0;      // of an action; of a message its receiver; of a group its first rank
  NodeId first = 0;  // where its detail begins
  NodeId last = 0;   // and ends
};

struct UnfoldedStages {
  ScheduleGraph graph;                             // without `rank_order`; ids are in topological order
  std::vector<std::vector<NodeCopy>> copies = {};  // by folded node, ascending by first
};

// Every compute and optimizer node once for each rank of its stage, every message as the parts that go from one rank to
// another (common/layout/message_shares.hpp), every reduction, of which `reductions` has the plan by stage, as one for
// each data group. Collectives of tensor groups stay inside the time of their actions. Nodes have their durations when
// nothing contends but what one message or one stage's reductions share, so that `evaluate` says the same of both
// graphs; of a reduction that is hidden in part only the rest is there. Throws InputError where `folded` or the costs
// are not of this layout, or the schedule evicts activations.
[[nodiscard]] UnfoldedStages unfold_stages(const ScheduleGraph& folded, const PipelineCosts& costs,
                                           const Layout& layout, const std::vector<CollectivePlan>& reductions);

// The folded nodes as these ranks have them, from the first start to the last end of what they stand for there; those
// that none of the ranks has as all others do.
[[nodiscard]] Evaluation folded_back(const UnfoldedStages& unfolded, const Evaluation& evaluation,
                                     const std::vector<int>& ranks);

}  // namespace plumb
