#include "common/graph/topological_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "common/base/stop.hpp"
#include "common/graph/exchange_steps.hpp"

namespace plumb {

// The ready set is small: about one node per rank and message on its way.
bool sort_topologically(ScheduleGraph& graph) {
  graph.predecessor_count.assign(graph.nodes.size(), 0);
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    for (const auto next : successors(graph, node)) {
      ++graph.predecessor_count[next];
    }
  }
  std::vector<NodeId> waits_for = graph.predecessor_count;
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    if (waits_for[node] == 0) ready.push(node);
  }
  graph.topological_order.clear();
  graph.topological_order.reserve(graph.nodes.size());
  while (!ready.empty()) {
    look_at_stop();
    const NodeId node = ready.top();
    ready.pop();
    graph.topological_order.push_back(node);
    for (const auto next : successors(graph, node)) {
      if (--waits_for[next] == 0) ready.push(next);
    }
  }
  return graph.topological_order.size() == graph.nodes.size();
}

std::string describe_cycle(const ScheduleGraph& graph) {
  std::vector<bool> ended(graph.nodes.size(), false);
  for (const NodeId node : graph.topological_order) ended[node] = true;
  std::vector<NodeId> waits_for(graph.nodes.size(), no_node);  // one of the nodes that each waits for
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    if (ended[node]) continue;
    for (const auto next : successors(graph, node)) waits_for[next] = std::min(waits_for[next], node);
  }
  std::vector<bool> passed(graph.nodes.size(), false);
  auto at = static_cast<NodeId>(std::ranges::find(ended, false) - ended.begin());
  for (; !passed[at]; at = waits_for[at]) passed[at] = true;
  constexpr int most = 6;  // that are named
  const auto name = [&](NodeId node) {
    return fmt::format("rank {}'s {}", graph.nodes[node].rank, to_string(graph.nodes[node].action));
  };
  std::string text =
      fmt::format("deadlock: rank {} waits at {}", graph.nodes[at].rank, to_string(graph.nodes[at].action));
  int named = 0;
  for (NodeId node = waits_for[at]; node != at; node = waits_for[node]) {
    if (++named == most) text += ", which waits for others";
    if (named < most) text += (named == 1 ? " for " : ", which waits for ") + name(node);
  }
  return text + ", which waits for rank " + std::to_string(graph.nodes[at].rank) + " again";
}

}  // namespace plumb
