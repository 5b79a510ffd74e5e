#include "common/graph/exchange_steps.hpp"

namespace plumb {

ExchangeSteps exchange_steps(const ScheduleGraph& graph, std::vector<bool> joins_next,
                             bool joins_forward_and_backward) {
  const std::vector<NodeId> nowhere(graph.nodes.size(), no_node);
  ExchangeSteps steps{.first = nowhere, .last = nowhere, .before = nowhere, .after = nowhere};
  const auto kind = [&](NodeId node) { return graph.nodes[node].action.kind; };
  for (const std::vector<NodeId>& order : graph.rank_order) {
    for (std::size_t i = 0; joins_forward_and_backward && i + 1 < order.size(); ++i) {
      if (kind(order[i]) == ActionKind::forward && kind(order[i + 1]) == ActionKind::backward) {
        joins_next[order[i]] = true;
      }
    }
    for (std::size_t begin = 0; begin < order.size();) {
      std::size_t end = begin + 1;
      while (end < order.size() && joins_next[order[end - 1]]) ++end;
      for (std::size_t i = begin; i < end; ++i) {
        const NodeId node = order[i];
        steps.first[node] = order[begin];
        steps.last[node] = order[end - 1];
        if (begin > 0) steps.before[node] = order[begin - 1];
        if (end < order.size()) steps.after[node] = order[end];
      }
      begin = end;
    }
  }
  return steps;
}

}  // namespace plumb
