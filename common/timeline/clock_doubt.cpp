#include "common/timeline/clock_doubt.hpp"

#include <algorithm>

namespace plumb {

ClockDoubt clock_doubt(const ScheduleGraph& graph, const Timeline& predicted, const Timeline& measured) {
  const std::size_t count = graph.nodes.size();
  ClockDoubt doubt{.durations = std::vector<Seconds>(count), .gaps = std::vector<Seconds>(count)};
  if (predicted.clock_uncertainty + measured.clock_uncertainty == Seconds{}) return doubt;
  const auto between = [&](int rank, int other) {
    return uncertainty_between(predicted, rank, other) + uncertainty_between(measured, rank, other);
  };
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.nodes[id];
    if (node.peer >= 0) doubt.durations[id] = between(node.rank, node.peer);
  }
  const auto starts_on = [](const Node& node) { return node.kind == NodeKind::transfer ? node.peer : node.rank; };
  const auto of_either = [&](NodeId id) {
    return graph.nodes[id].kind == NodeKind::transfer ? Seconds{} : doubt.durations[id];
  };
  for (NodeId before = 0; before < count; ++before) {
    for (const NodeId after : successors(graph, before)) {
      const Seconds apart = between(graph.nodes[before].rank, starts_on(graph.nodes[after]));
      doubt.gaps[after] = std::max({doubt.gaps[after], apart, of_either(before), of_either(after)});
    }
  }
  // What waits for nothing begins so long after the step's first event, which any rank may have.
  for (NodeId id = 0; id < count; ++id) {
    if (graph.predecessor_count[id] > 0) continue;
    for (int rank = 0; rank < graph.ranks; ++rank) {
      doubt.gaps[id] = std::max(doubt.gaps[id], between(graph.nodes[id].rank, rank));
    }
  }
  return doubt;
}

}  // namespace plumb
