// The graph of all ranks of a layout, from that of one rank per pipeline stage.
#pragma once

#include <vector>

#include "common/graph/evaluate.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/layout.hpp"
#include "common/program/program_parts.hpp"

namespace plumb {

// What the actions of one stage do, by kind; an empty list: they only compute.
struct StageParts {
  std::vector<ActionPart> forward = {};  // and R
  std::vector<ActionPart> input_gradient = {};
  std::vector<ActionPart> weight_gradient = {};
  std::vector<ActionPart> backward = {};
  std::vector<ActionPart> optimizer = {};
  CollectivePlan reduction = {};  // of its gradients over the data-parallel ranks
};

// All that unfolding needs beside the folded graph.
struct UnfoldingDetails {
  std::vector<StageParts> stages = {};  // by stage, and of each by slice
  CollectiveTable collectives;          // that parts name
  int slices = 1;
};

// Ranks that differ from the pipeline's only on other axes are lanes, in the order of their ranks at the first stage.
struct UnfoldedGraph {
  ScheduleGraph graph;  // without `rank_order`; ids are in topological order
  int lanes = 1;
  std::vector<int> lane_base = {};  // the rank of each lane at pipeline coordinate 0
  int stride = 1;                   // between the ranks of two neighbours of the pipeline
  std::vector<NodeId> first = {};   // by folded node · lanes + lane: where its detail begins
  std::vector<NodeId> last = {};    // and ends
};

// Every node of `folded` once for each lane: computing as its parts, whose collectives are one node for each tensor
// group; a reduction as one for each data group; a message between each pair of ranks. Nodes have their durations when
// nothing contends but what a stage's own ranks share, so that `evaluate` says the same of both graphs. A
// reduction that its stage's last action hides in part starts with that action. Where parts do not add up to the folded
// node's duration (overlapped pairs) all of them are scaled alike. Throws InputError where `folded` is not of this
// layout, or the node ids do not suffice.
[[nodiscard]] UnfoldedGraph unfold(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                                   const UnfoldingDetails& details);

[[nodiscard]] inline int rank_in_lane(const UnfoldedGraph& unfolded, int folded_rank, int lane) {
  return unfolded.lane_base[static_cast<std::size_t>(lane)] + folded_rank * unfolded.stride;
}

// When the folded nodes start and end in one lane.
[[nodiscard]] Evaluation in_lane(const UnfoldedGraph& unfolded, const Evaluation& evaluation, int lane);

}  // namespace plumb
