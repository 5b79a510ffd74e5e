#include "common/graph/joined_parts.hpp"

#include <algorithm>
#include <array>

#include "common/base/error.hpp"
#include "common/graph/exchange_steps.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {

const JoinCost& join_cost(const PipelineCosts& costs, const Action& action) {
  const VocabularyCost& all = costs.vocabulary;
  if (action.kind == ActionKind::all_reduce) return all.statistics;
  const bool head = sort_of_stage(action.stage, chain_stages(costs), all.parts) == StageSort::head;
  if (action.kind == ActionKind::broadcast) return head ? all.head_broadcast : all.embedding_broadcast;
  return head ? all.head_sum : all.embedding_sum;
}

Action JoinedParts::shared_name(Action action) const {
  action.stage = part_on(schedule_, action.stage, 0);
  return action;
}

NodeId JoinedParts::known(const Action& action) const {
  const auto found = nodes_.find(shared_name(action));
  return found == nodes_.end() ? no_node : found->second;
}

void JoinedParts::set(Node& node, ScheduleGraph& graph) {
  if (group_ < 0) {
    group_ = static_cast<std::int32_t>(graph.groups.size());
    std::vector<int>& ranks = graph.groups.emplace_back();
    for (int rank = 0; rank < schedule_.ranks; ++rank) ranks.push_back(rank);
  }
  const JoinCost& cost = join_cost(costs_, node.action);
  node.kind = NodeKind::collective;
  node.group = group_;
  node.flow = flow_index(graph, {.latency = cost.latency, .inside = cost.inside, .outside = cost.outside});
}

std::vector<std::pair<NodeId, NodeId>> JoinedParts::edges(const ActionIndex& index,
                                                          const std::vector<NodeId>& node_at) const {
  std::vector<std::pair<NodeId, NodeId>> edges;
  if (schedule_.vocabulary_barriers == 0) return {};
  const auto node_of = [&](const Action& action) {
    const std::int32_t position =
        action.kind == ActionKind::backward ? index.find_gradient(action.stage, action.microbatch) : index.find(action);
    if (position != nowhere) return node_at[static_cast<std::size_t>(position)];
    throw InputError("schedule",
                     to_string(action) + " is missing, which joins the parts of the vocabulary or is joined",
                     "lower the schedule first");
  };
  // Of each part: what an action reads is joined before it, what it makes behind it; of the sums and broadcasts the
  // other end is the stage beside the parts.
  for (int part = stages(schedule_); part < all_stages(schedule_); ++part) {
    for (int k = 0; k < schedule_.microbatches; ++k) {
      const Action forward{ActionKind::forward, part, k};
      const bool full = index.find(ActionKind::backward, part, k) != nowhere;
      const Action gradient{full ? ActionKind::backward : ActionKind::input_gradient, part, k};
      const int beside = neighbour_of_parts(schedule_, part);
      const bool head = sort_of_stage(schedule_, part) == StageSort::head;
      const Action source{head ? ActionKind::forward : ActionKind::backward, beside, k};
      const Action target{head ? ActionKind::backward : ActionKind::forward, beside, k};
      for (const Action& action : {forward, gradient}) {
        for (const Action& joined : joined_before(schedule_, action)) {
          edges.emplace_back(node_of(joined), node_of(action));
          edges.emplace_back(node_of(source), node_of(joined));
        }
        for (const Action& joined : joined_behind(schedule_, action)) {
          edges.emplace_back(node_of(action), node_of(joined));
          if (joined.kind == ActionKind::reduce) edges.emplace_back(node_of(joined), node_of(target));
          if (joined.kind != ActionKind::all_reduce) continue;
          edges.emplace_back(node_of(joined), node_of(full ? gradient : Action{ActionKind::weight_gradient, part, k}));
        }
      }
    }
  }
  // One stream has all broadcasts and another one all sums, which wait for every rank's turn.
  for (std::size_t rank = 0; rank < schedule_.actions.size(); ++rank) {
    std::array<NodeId, 2> last{no_node, no_node};
    auto position = static_cast<std::size_t>(index.first_of_rank[rank]);
    for (const Action& action : schedule_.actions[rank]) {
      const NodeId node = node_at[position++];
      if (!joins_parts(action.kind)) continue;
      NodeId& before = last.at(action.kind == ActionKind::broadcast ? 0 : 1);
      if (before != no_node) edges.emplace_back(before, node);
      before = node;
    }
  }
  // Each once, of however many ranks.
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

}  // namespace plumb
