// The graph of all ranks of a layout, from that of one rank per pipeline stage.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/cost/gradient_buckets.hpp"
#include "common/graph/evaluate.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/layout.hpp"
#include "common/program/program_parts.hpp"

namespace plumb {

// A block of an action whose data-parallel ranks move something for it: computing with the collectives of its tensor
// group, before it its weights' gathering, behind it its gradients' reducing (without phases: nothing moves). Copies to
// the host and back always go beside the neighbours.
struct BlockParts {
  std::vector<ActionPart> parts = {};
  CollectivePlan gathering = {};
  CollectivePlan reducing = {};
  // Of each rank by itself: its activations come from the host before it, or go there behind it.
  Seconds copied_before = {};
  Seconds copied_behind = {};
  Seconds weights_up = {};  // its own parts of the weights come, before these are gathered and before activations
};
// In the order in which the action goes through them.
struct ActionBlocks {
  std::vector<BlockParts> blocks = {};
  int prefetch = 0;  // blocks ahead: moves go beside computing as MoveOrder says; 0: one after the other with it
};
// How long it takes.
[[nodiscard]] Seconds time_of(const ActionBlocks& blocks, const CollectiveTable& table);

// What the actions of one stage do, by kind; an empty list: they only compute.
struct StageParts {
  std::vector<ActionPart> forward = {};  // and R
  std::vector<ActionPart> input_gradient = {};
  std::vector<ActionPart> weight_gradient = {};
  std::vector<ActionPart> backward = {};
  std::vector<ActionPart> optimizer = {};
  // In the place of the first four where actions move weights or gradients themselves; R is as F unless it is there.
  std::map<ActionKind, ActionBlocks> blocks = {};
  StageReduction reduction = {};               // of its gradients
  std::vector<CollectivePlan> gathering = {};  // of its weights, once a step, one after the other
};

// All that unfolding needs beside the folded graph.
struct UnfoldingDetails {
  std::vector<StageParts> stages = {};  // by stage, and of each by slice
  CollectiveTable collectives;          // that parts name
  int slices = 1;
};

// What a folded node is on one rank that takes part in it.
struct NodeCopy {
  int rank = 0;
  NodeId first = 0;  // where its detail begins
  NodeId last = 0;   // and ends
};

struct UnfoldedGraph {
  ScheduleGraph graph;                             // without `rank_order`; ids are in topological order
  std::vector<std::vector<NodeCopy>> copies = {};  // by folded node, ascending by rank; several messages to one rank
};

// How large that graph is; copies of all folded nodes together.
struct UnfoldedSize {
  std::int64_t folded = 0;  // nodes of the folded graph
  std::int64_t nodes = 0;
  std::int64_t edges = 0;
  std::int64_t copies = 0;
};

// Every node of `folded` once for each rank of its stage: computing as its parts, whose collectives are one node for
// each tensor group; a reduction, or gathering of weights, as one for each data group, of HSDP for each of its groups;
// a message between each pair of ranks of one lane, or as the parts that go from one rank to another where stages have
// different data degrees (common/layout/message_shares.hpp). Nodes have their durations when nothing contends but what
// one message, a stage's own ranks or the groups of all stages share, so that `evaluate` says the same of both graphs.
// A reduction that its stage's last action hides in part starts with that action; of HSDP's copies each sum behind that
// within its copy, also of gradients that the action reduces itself. Where parts do not add up to the
// folded node's duration (overlapped pairs) all of them are scaled alike. Throws InputError where `folded` or the costs
// are not of this layout, stages with different data degrees exchange more than messages and gradients, or the node ids
// do not suffice. `expected`: for how much room is made at once.
[[nodiscard]] UnfoldedGraph unfold(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                                   const UnfoldingDetails& details, const UnfoldedSize& expected = {});

// That graph's size without making it, in the time that one microbatch of it takes. An edge between folded nodes counts
// once for each message, or each rank of the node with fewer, so edges may be a few too many. Throws InputError as
// `unfold` does.
[[nodiscard]] UnfoldedSize unfolded_size(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                                         const UnfoldingDetails& details);

inline constexpr int all_ranks = -1;

// When the folded nodes start and end on these ranks, by the folded one for which each stands: from the first start to
// the last end of what it takes part in there, or of all ranks.
[[nodiscard]] Evaluation folded_back(const ScheduleGraph& folded, const UnfoldedGraph& unfolded,
                                     const Evaluation& evaluation, const std::vector<int>& rank_of);

}  // namespace plumb
