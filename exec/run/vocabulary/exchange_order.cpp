#include "exec/run/vocabulary/exchange_order.hpp"

#include <algorithm>
#include <map>

#include "common/schedule/vocabulary_parts.hpp"

namespace plumb::exec {
namespace {

// By exchange, as `rank` names it. What it gives itself is among it, since a line waits for that, too.
std::map<Action, std::vector<Giver>> givers_by_exchange(const Schedule& lowered, int rank) {
  std::map<Action, std::vector<Giver>> givers;
  for (int other = 0; other < lowered.ranks; ++other) {
    for (const Action& action : lowered.actions[static_cast<std::size_t>(other)]) {
      for (Action exchange : exchanges_behind(lowered, action)) {
        exchange.stage = part_on(lowered, exchange.stage, rank);
        if (other == rank || gets_from(lowered, exchange, rank, other)) givers[exchange].push_back({other, action});
      }
    }
  }
  return givers;
}

}  // namespace

bool gets_from(const Schedule& lowered, const Action& exchange, int rank, int other) {
  const int root = rank_beside_parts(lowered, exchange.stage);
  if (exchange.kind == ActionKind::broadcast) return other == root;
  return exchange.kind != ActionKind::reduce || rank == root;
}

std::optional<Action> exchange_before(const Schedule& lowered, const Action& action) {
  std::optional<Action> joined = joined_for(lowered, action);
  if (joined) joined->stage = part_on(lowered, joined->stage, rank_in_replica(lowered, 0, action.stage));
  return joined;
}

std::vector<Action> exchanges_behind(const Schedule& lowered, const Action& action) {
  if (is_part(lowered, action.stage)) return joined_behind(lowered, action);
  const bool last = action.kind == ActionKind::forward && action.stage + 1 == stages(lowered);
  const bool first = makes_input_gradient(action.kind) && action.stage == 0;
  if (!first && !last) return {};
  const int rank = rank_in_replica(lowered, 0, action.stage);
  return {{ActionKind::broadcast, last ? head_part(lowered, rank) : embedding_part(lowered, rank), action.microbatch}};
}

std::vector<Giver> givers_before(const Schedule& lowered, int rank, const Action& action) {
  if (lowered.vocabulary_barriers == 0) return {};
  if (joins_parts(action.kind) || is_send(action.kind) || is_receive(action.kind)) return {};
  const bool computes = is_compute(action.kind);
  const std::optional<Action> needed = computes ? exchange_before(lowered, action) : std::nullopt;
  if (computes && !needed) return {};
  const auto givers = givers_by_exchange(lowered, rank);
  std::vector<Giver> all;
  for (const Action& exchange : lowered.actions[static_cast<std::size_t>(rank)]) {
    if (!joins_parts(exchange.kind) || (needed && stream_of(exchange) != stream_of(*needed))) continue;
    if (const auto found = givers.find(exchange); found != givers.end())
      std::ranges::copy(found->second, std::back_inserter(all));
    if (exchange == needed) break;
  }
  return all;
}

}  // namespace plumb::exec
