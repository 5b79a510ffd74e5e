#include <fmt/format.h>

#include <algorithm>

#include "common/schedule/action_index.hpp"
#include "common/schedule/validate.hpp"

namespace plumb {
namespace {

// +1 where a microbatch's activations come to life on a rank, −1 where they are freed or leave it, else 0.
int change(const Schedule& schedule, const ActionIndex& index, int rank, const Action& action) {
  switch (action.kind) {
    case ActionKind::forward:
      return index.find(ActionKind::recompute, action.stage, action.microbatch) == nowhere ? 1 : 0;
    case ActionKind::recompute:
      return 1;
    case ActionKind::backward:
    case ActionKind::weight_gradient:
      return -1;
    case ActionKind::evict:
    case ActionKind::load: {
      const bool own = rank_of(schedule, action.stage, action.microbatch) == rank;
      return own == (action.kind == ActionKind::evict) ? -1 : 1;
    }
    default:
      return 0;
  }
}

}  // namespace

std::vector<ScheduleProblem> check_activations(const Schedule& schedule, double most) {
  const ActionIndex index = index_actions(schedule);
  std::vector<ScheduleProblem> problems;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const double share = chunks_of_rank(schedule, rank) * schedule.slices;
    int held = 0;
    int peak = 0;
    const Action* first_above = nullptr;
    for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
      if (!in_range(schedule, action)) continue;
      held += change(schedule, index, rank, action);
      peak = std::max(peak, held);
      if (first_above == nullptr && held / share > most) first_above = &action;
    }
    if (first_above == nullptr) continue;
    problems.push_back(
        {ScheduleProblem::Kind::over_limit,
         {rank},
         {*first_above},
         fmt::format("rank {}: holds {:.6g} activations at its peak, the limit is {:.6g}; the first that "
                     "is too many comes with {}",
                     rank, peak / share, most, to_string(*first_above))});
  }
  return problems;
}

}  // namespace plumb
