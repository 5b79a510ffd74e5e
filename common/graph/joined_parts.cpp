#include "common/graph/joined_parts.hpp"

#include <algorithm>
#include <array>
#include <optional>

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
  for (std::size_t rank = 0; rank < schedule_.actions.size(); ++rank) {
    // They wait for every rank's turn.
    std::array<NodeId, 2> last{no_node, no_node};
    auto position = static_cast<std::size_t>(index.first_of_rank[rank]);
    for (const Action& action : schedule_.actions[rank]) {
      const NodeId node = node_at[position++];
      if (joins_parts(action.kind)) {
        NodeId& before = last.at(static_cast<std::size_t>(stream_of(action)));
        if (before != no_node) edges.emplace_back(before, node);
        before = node;
        continue;
      }
      const std::optional<Action> joined = joined_for(schedule_, action);
      if (!joined) continue;
      edges.emplace_back(node_of(*joined), node);
      if (is_part(schedule_, action.stage) && rank != 0) continue;  // once is enough
      for (const Action& maker : makers_of(schedule_, *joined)) edges.emplace_back(node_of(maker), node_of(*joined));
    }
  }
  // Each once, of however many ranks.
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

}  // namespace plumb
