// Sums of gradients, REDUCE_TIED and REDUCE_GRAD, and UNSHARD, which gathers weights: which action each of two ranks
// has for it, and what makes their summands complete.
#pragma once

#include <algorithm>
#include <vector>

#include "common/schedule/action.hpp"

namespace plumb {

[[nodiscard]] constexpr bool is_reduction(ActionKind kind) {
  return kind == ActionKind::reduce_tied || kind == ActionKind::reduce_gradient;
}

// What a rank does together with others of a group, all at once.
[[nodiscard]] constexpr bool is_collective(ActionKind kind) {
  return is_reduction(kind) || kind == ActionKind::unshard || kind == ActionKind::clip_gradients;
}

// The other rank's action: of a tied embedding each rank names its own stage, the first or the last; the ranks of two
// replicas name the same.
[[nodiscard]] constexpr Action other_half(Action reduction, std::int32_t stages) {
  if (reduction.kind == ActionKind::reduce_tied) reduction.stage = reduction.stage == 0 ? stages - 1 : 0;
  return reduction;
}

// One name for both.
[[nodiscard]] constexpr Action name_of_both(Action reduction) {
  if (reduction.kind == ActionKind::reduce_tied) reduction.stage = 0;
  return reduction;
}

// Where a rank's list gathers weights: by the first UNSHARD of it.
[[nodiscard]] inline WeightGathering gathering_of(const std::vector<Action>& list) {
  for (const Action& action : list) {
    if (action.kind == ActionKind::unshard) return WeightGathering::before_forward;
    if (action.kind == ActionKind::optimizer_step) break;
  }
  const bool gathers = std::ranges::find(list, ActionKind::unshard, &Action::kind) != list.end();
  return gathers ? WeightGathering::behind_steps : WeightGathering::none;
}

// Of each stage in a rank's list the last action that adds to its weights' gradients, W or B: in the order of the list.
[[nodiscard]] inline std::vector<Action> last_weight_gradients(const std::vector<Action>& list) {
  std::vector<Action> last;
  for (auto action = list.rbegin(); action != list.rend(); ++action) {
    if (action->kind != ActionKind::backward && action->kind != ActionKind::weight_gradient) continue;
    if (std::ranges::find(last, action->stage, &Action::stage) == last.end()) last.push_back(*action);
  }
  std::ranges::reverse(last);
  return last;
}

}  // namespace plumb
