#include "common/graph/exchange_steps.hpp"

#include <cstdint>

namespace plumb {
namespace {

bool redoes(const Action& action, const Action& next) {
  return action.kind == ActionKind::recompute && makes_input_gradient(next.kind);
}

bool turns(const Action& action, const Action& next) {
  return action.kind == ActionKind::forward &&
         (next.kind == ActionKind::backward || next.kind == ActionKind::recompute);
}

// The place of a rank's last action of its layers; 0 where nothing is to be joined to a step of these.
std::size_t last_of_layers(const ScheduleGraph& graph, const std::vector<NodeId>& order, int layers) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Node& node = graph.nodes[order[i]];
    if (node.kind == NodeKind::compute && node.action.stage < layers) last = i;
  }
  return last;
}

// All ranks run one step each at the same time, those that have what they use; then all messages are exchanged.
class Lockstep {
 public:
  Lockstep(const ScheduleGraph& graph, const ExchangeSteps& steps, std::vector<ExchangedMessage>& messages)
      : graph_(graph), steps_(steps), messages_(messages), at_(graph.rank_order.size(), 0) {
    const std::size_t nodes = graph.nodes.size();
    missing_.assign(nodes, 0);
    made_by_.resize(nodes);
    for (std::size_t n = 0; n < messages.size(); ++n) {
      ++missing_[messages[n].used];
      made_by_[messages[n].made].push_back(n);
    }
  }

  void run() {
    while (true) {
      const std::vector<NodeId> ended = run_round();
      if (ended.empty()) return;
      for (const NodeId last : ended) {
        for (const std::size_t n : made_by_[last]) receive(messages_[n]);
      }
    }
  }

 private:
  // The last nodes of the steps that ran.
  std::vector<NodeId> run_round() {
    std::vector<NodeId> ended;
    for (std::size_t rank = 0; rank < at_.size(); ++rank) {
      const std::vector<NodeId>& order = graph_.rank_order[rank];
      std::size_t& at = at_[rank];
      if (at == order.size() || missing_[order[at]] > 0) continue;
      const NodeId last = steps_.last[order[at]];
      while (order[at++] != last) {
      }
      ended.push_back(last);
    }
    return ended;
  }

  void receive(ExchangedMessage& message) {
    --missing_[message.used];
    const auto rank = static_cast<std::size_t>(graph_.nodes[message.used].rank);
    const std::size_t at = at_[rank];
    message.next = graph_.rank_order[rank][at];
    message.before = at > 0 ? graph_.rank_order[rank][at - 1] : no_node;
  }

  const ScheduleGraph& graph_;
  const ExchangeSteps& steps_;
  std::vector<ExchangedMessage>& messages_;
  std::vector<std::size_t> at_;                    // by rank: where its next step begins
  std::vector<std::uint32_t> missing_;             // by a step's first node: messages that it still lacks
  std::vector<std::vector<std::size_t>> made_by_;  // by a step's last node
};

}  // namespace

ExchangeSteps exchange_steps(const ScheduleGraph& graph, std::vector<bool> joins_next, StepRules rules) {
  const std::vector<NodeId> nowhere(graph.nodes.size(), no_node);
  ExchangeSteps steps{.first = nowhere, .last = nowhere, .before = nowhere, .after = nowhere};
  const auto action = [&](NodeId node) -> const Action& { return graph.nodes[node].action; };
  for (const std::vector<NodeId>& order : graph.rank_order) {
    std::vector<NodeId> turning;  // forwards right before a backward
    for (std::size_t i = 0; i + 1 < last_of_layers(graph, order, rules.layers); ++i) {
      if (action(order[i + 1]).stage >= rules.layers) joins_next[order[i]] = true;
    }
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      if (rules.joins_forward_and_backward && turns(action(order[i]), action(order[i + 1]))) {
        turning.push_back(order[i]);
      }
      if (rules.joins_recompute_and_backward && redoes(action(order[i]), action(order[i + 1]))) {
        joins_next[order[i]] = true;
      }
    }
    if (turning.size() > 1) {
      for (const NodeId forward : turning) joins_next[forward] = true;
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

void receive_in_lockstep(const ScheduleGraph& graph, const ExchangeSteps& steps,
                         std::vector<ExchangedMessage>& messages) {
  Lockstep(graph, steps, messages).run();
}

}  // namespace plumb
