#include "common/graph/unfolded_nodes.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "common/graph/exchange_steps.hpp"

namespace plumb {
namespace {

void require_ids(std::int64_t nodes) {
  if (nodes >= std::int64_t{no_node}) throw InputError("graph", "has more nodes than can be counted");
}

}  // namespace

NodeId UnfoldedNodes::emit(const Node& node) {
  require_ids(std::int64_t{next_} + 1);
  if (keeps_) graph_.nodes.push_back(node);
  return next_++;
}

NodeId UnfoldedNodes::emit_joined(Node node, const std::vector<int>& ranks, const Flow& flow) {
  node.rank = ranks.front();
  if (ranks.size() > 1) {
    const auto known = std::ranges::find(graph_.groups, ranks);
    node.group = static_cast<std::int32_t>(known - graph_.groups.begin());
    node.flow = flow_index(graph_, flow);
    if (known == graph_.groups.end()) graph_.groups.push_back(ranks);
  }
  return emit(node);
}

void UnfoldedNodes::edge(NodeId from, NodeId to) {
  if (from == no_node) return;
  ++edge_count_;
  if (keeps_) edges_.emplace_back(from, to);
}

void UnfoldedNodes::reserve(std::int64_t nodes, std::int64_t edges) {
  require_ids(nodes);
  graph_.nodes.reserve(static_cast<std::size_t>(nodes));
  edges_.reserve(static_cast<std::size_t>(edges));
}

void UnfoldedNodes::count_alone() {
  keeps_ = false;
  next_ = 0;
  edge_count_ = 0;
}

NodeId UnfoldedNodes::add_collective(const Node& folded, std::int32_t group, const CollectivePlan& plan, double factor,
                                     const std::vector<NodeId>& before) {
  NodeId previous = no_node;
  for (int i = 0; i < plan.count; ++i) {
    const CollectivePhase& phase = plan.phases.at(static_cast<std::size_t>(i));
    const Flow flow{phase.latency * factor, phase.inside * factor, phase.outside * factor};
    const NodeId id = emit({.kind = NodeKind::collective,
                            .action = folded.action,
                            .rank = graph_.groups[static_cast<std::size_t>(group)].front(),
                            .bytes = {std::llround(std::max(flow.inside, flow.outside))},
                            .duration = phase.time * factor,
                            .group = group,
                            .flow = flow_index(graph_, flow)});
    if (i == 0) {
      for (const NodeId one : before) edge(one, id);
    }
    edge(previous, id);
    previous = id;
  }
  return previous;
}

NodeId UnfoldedNodes::add_collectives(const Node& folded, std::int32_t group, std::span<const CollectivePlan> plans,
                                      double factor) {
  NodeId previous = no_node;
  for (const CollectivePlan& plan : plans) previous = add_collective(folded, group, plan, factor, {previous});
  return previous;
}

void UnfoldedNodes::finish() {
  graph_.edges = ScheduleGraph::Edges(boost::edges_are_unsorted_multi_pass, edges_.begin(), edges_.end(),
                                      static_cast<NodeId>(graph_.nodes.size()));
  graph_.predecessor_count.assign(graph_.nodes.size(), 0);
  for (const auto& edge : edges_) ++graph_.predecessor_count[edge.second];
  // Nodes follow those of the folded graph in its topological order.
  graph_.topological_order.resize(graph_.nodes.size());
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) graph_.topological_order[id] = id;
}

}  // namespace plumb
