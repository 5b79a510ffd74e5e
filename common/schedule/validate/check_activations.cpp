#include <fmt/format.h>

#include <algorithm>

#include "common/schedule/held_activations.hpp"
#include "common/schedule/validate/validate.hpp"

namespace plumb {
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
      held += activation_change(schedule, index, rank, action);
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
