// The graph under both halves: a lowered schedule and its costs as nodes with durations and edges of order and data.
#pragma once

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/range/iterator_range_core.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {

// Closed: new features add costs and edges, not kinds.
enum class NodeKind : std::uint8_t { compute, transfer, collective, host_copy, reshard, optimizer };

struct Node {
  NodeKind kind = NodeKind::compute;
  Action action;            // of a transfer: the receive; of a collective: its first rank's action
  std::int32_t rank = 0;    // where it runs; of a transfer: the receiver
  std::int32_t peer = -1;   // of a transfer: the sender; of a collective of two: the other rank
  Bytes bytes;              // payload of a transfer or collective
  Seconds duration;         // alone on its device and on its way
  std::int32_t group = -1;  // of a collective: in `groups`; -1: of two ranks, or folded
  std::int32_t flow = -1;   // in `flows`; -1: what the duration exceeds bytes / bandwidth is latency
  bool operator==(const Node&) const = default;
};

// A collective over ranks of which the graph has one: data-parallel ones.
[[nodiscard]] inline bool is_folded(const Node& node) {
  return node.kind == NodeKind::collective && node.peer < 0 && node.group < 0;
}

// What a rank runs on its one stream: all else goes on beside it.
[[nodiscard]] inline bool occupies_rank(const Node& node) {
  return node.kind == NodeKind::compute || node.kind == NodeKind::optimizer;
}

// How a message or a collective is sent: nothing for `latency`, then its bytes. Of a collective each rank of the group
// sends `inside` bytes to the next one on its machine and `outside` bytes to one on the next machine.
struct Flow {
  Seconds latency = {};
  double inside = 0;
  double outside = 0;
  bool operator==(const Flow&) const = default;
};

using NodeId = std::uint32_t;

// Edge u → v: v may start when u has ended. Node ids follow (rank, position in its list), transfers where the receive
// stands; sends have no node of their own (they cost nothing but their transfer).
struct ScheduleGraph {
  using Edges = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                                   boost::no_property, NodeId, NodeId>;
  std::vector<Node> nodes;
  Edges edges;                                  // successors
  std::vector<NodeId> predecessor_count;        // per node
  std::vector<NodeId> topological_order;        // deterministic: ties by id
  std::vector<std::vector<NodeId>> rank_order;  // per rank, nodes that occupy it, in its order: compute, optimizer
  int ranks = 1;
  std::vector<std::vector<int>> groups = {};  // ranks, ascending
  std::vector<Flow> flows = {};               // different ones
};

// The index of an equal one, which is added if there is none.
[[nodiscard]] std::int32_t flow_index(ScheduleGraph& graph, const Flow& flow);

// What may start when `node` has ended, for range-for.
[[nodiscard]] inline auto successors(const ScheduleGraph& graph, NodeId node) {
  return boost::make_iterator_range(adjacent_vertices(node, graph.edges));
}

// Edges: order of a rank's compute and optimizer actions (its one stream); producer → transfer → consumer; producer →
// consumer where a stage boundary lies within a rank; all that stands before REDUCE_TIED on its two ranks → the
// collective → the next optimizer step of each; all that stands before the CLIP of every rank → the one node that they
// are → the next optimizer step of each; what joins the parts of a vocabulary, one node of all ranks, behind what it
// joins and the one before it → what reads it (common/graph/joined_parts.hpp); all that stands before an UNSHARD, which
// gathers weights, and the one before it → this → the next action behind it. Transfers and collectives overlap compute,
// unless messages are exchanged synchronously: then a transfer starts when both ranks have ended the step before, and
// both go on when it has ended. Throws InputError when the schedule is not lowered or has a cycle; run `require_valid`
// first for the full story.
[[nodiscard]] ScheduleGraph build_graph(const Schedule& lowered, const PipelineCosts& costs);

// Of one compute action of a stage of this cost, alone.
[[nodiscard]] Seconds compute_time(const ComputeCost& cost, const Action& action);

// What a node's bytes are, and its duration before pairs and ports are shared, for other costs of the same graph.
[[nodiscard]] Bytes payload(const Node& node, const PipelineCosts& costs);
[[nodiscard]] Seconds time_alone(const Node& node, const PipelineCosts& costs);

// The edges above without durations; replays and diffs put measured ones in.
[[nodiscard]] std::vector<Seconds> durations(const ScheduleGraph& graph);

}  // namespace plumb
