#include "common/timeline/diff/clock_uncertainty.hpp"

#include <algorithm>

namespace plumb {

NodeUncertainty node_uncertainty(const ScheduleGraph& graph, const Timeline& predicted, const Timeline& measured) {
  const std::size_t count = graph.nodes.size();
  NodeUncertainty uncertainty{.durations = std::vector<Seconds>(count), .gaps = std::vector<Seconds>(count)};
  if (predicted.clock_uncertainty + measured.clock_uncertainty == Seconds{}) return uncertainty;
  const auto between = [&](int rank, int other) {
    return uncertainty_between(predicted, rank, other) + uncertainty_between(measured, rank, other);
  };
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.nodes[id];
    if (node.peer >= 0) uncertainty.durations[id] = between(node.rank, node.peer);
    if (node.group < 0) continue;
    for (const int rank : graph.groups[static_cast<std::size_t>(node.group)]) {
      uncertainty.durations[id] = std::max(uncertainty.durations[id], between(node.rank, rank));
    }
  }
  const auto starts_on = [](const Node& node) { return node.kind == NodeKind::transfer ? node.peer : node.rank; };
  const auto of_either = [&](NodeId id) {
    return graph.nodes[id].kind == NodeKind::transfer ? Seconds{} : uncertainty.durations[id];
  };
  for (NodeId before = 0; before < count; ++before) {
    for (const NodeId after : successors(graph, before)) {
      const Seconds apart = between(graph.nodes[before].rank, starts_on(graph.nodes[after]));
      uncertainty.gaps[after] = std::max({uncertainty.gaps[after], apart, of_either(before), of_either(after)});
    }
  }
  // What waits for nothing begins so long after the step's first event, which any rank may have.
  for (NodeId id = 0; id < count; ++id) {
    if (graph.predecessor_count[id] > 0) continue;
    for (int rank = 0; rank < graph.ranks; ++rank) {
      uncertainty.gaps[id] = std::max(uncertainty.gaps[id], between(graph.nodes[id].rank, rank));
    }
  }
  return uncertainty;
}

}  // namespace plumb
