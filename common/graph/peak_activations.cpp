#include <algorithm>

#include "common/graph/memory.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

// +1 when a microbatch's activations come to life on a stage, −1 when the last of them is freed, else 0.
int change(const ActionIndex& index, const Action& action) {
  switch (action.kind) {
    case ActionKind::forward:
      return index.find(ActionKind::recompute, action.stage, action.microbatch) == nowhere ? 1 : 0;
    case ActionKind::recompute:
      return 1;
    case ActionKind::backward:
    case ActionKind::weight_gradient:
      return -1;
    default:
      return 0;
  }
}

// Calls at_change(rank, stage, ±1 or 0) for every compute action, rank by rank in the order of its list.
template <class AtChange>
void walk(const Schedule& schedule, const AtChange& at_change) {
  require_well_formed(schedule);
  const ActionIndex index = index_actions(schedule);
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      if (is_compute(action.kind) && in_range(schedule, action)) {
        at_change(rank, static_cast<std::size_t>(action.stage), change(index, action));
      }
    }
  }
}

}  // namespace

std::vector<double> peak_activations(const Schedule& schedule) {
  std::vector<int> held(schedule.actions.size(), 0);
  std::vector<int> most(schedule.actions.size(), 0);
  walk(schedule, [&](std::size_t rank, std::size_t, int by) {
    held[rank] += by;
    most[rank] = std::max(most[rank], held[rank]);
  });
  std::vector<double> shares;
  shares.reserve(most.size());
  for (const int count : most) shares.push_back(static_cast<double>(count) / std::max(1, schedule.chunks));
  return shares;
}

std::vector<int> kept_microbatches(const Schedule& schedule) {
  std::vector<int> held_by_rank(schedule.actions.size(), 0);
  std::vector<int> most(schedule.actions.size(), 0);
  std::vector<int> held(schedule.rank_of_stage.size(), 0);
  std::vector<int> at_peak(schedule.rank_of_stage.size(), 0);
  walk(schedule, [&](std::size_t rank, std::size_t stage, int by) {
    held[stage] += by;
    held_by_rank[rank] += by;
    if (held_by_rank[rank] <= most[rank]) return;
    most[rank] = held_by_rank[rank];
    for (std::size_t other = 0; other < held.size(); ++other) {
      if (schedule.rank_of_stage[other] == static_cast<int>(rank)) at_peak[other] = held[other];
    }
  });
  return at_peak;
}

}  // namespace plumb
