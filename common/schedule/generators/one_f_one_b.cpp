// 1F1B with a flush: DAPPLE (Fan et al., arXiv 2007.01045, section 3) and PipeDream-flush (arXiv 2006.09503).
//
// Order:  w × F, (m−w) × (F, B), w × B with w = min(p−r−1, m).
// Bubble: (p−1)(F+B). With a latency c ≤ ½·min(F, B) per hop and p dividing m (p ≥ 2) the makespan is
//         (m+p−1)(F+B) + 2c[(p−1)m/p + p−2].
// Memory: min(m, p−r).
// With a vocabulary divided over the ranks, b barriers: w = min(p−r−1+b, m), and the passes of vocabulary_passes.hpp.
// Bubble: the same, for F = B/2 and m ≥ p + b, whatever the parts take, but with one barrier min(w, B) less, w the W of
// a rank's part of the head: nothing waits for the last T, which stands where the first rank waits for its last B.
// Memory: min(m, p−r+b).
#include <algorithm>
#include <utility>

#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/vocabulary_passes.hpp"

namespace plumb {

Schedule generate_one_f_one_b(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("1f1b", shape);
  const int m = shape.microbatches;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const int w = std::min(shape.ranks - r - 1 + shape.vocabulary_barriers, m);
    // Phase 1, warm-up: w × F
    for (int k = 0; k < w; ++k) list.push_back({ActionKind::forward, r, k});
    // Phase 2, steady: (m−w) × (F, B)
    for (int k = 0; k < m - w; ++k) {
      list.push_back({ActionKind::forward, r, w + k});
      list.push_back({ActionKind::backward, r, k});
    }
    // Phase 3, cool-down: w × B
    for (int k = m - w; k < m; ++k) list.push_back({ActionKind::backward, r, k});
    if (shape.vocabulary_barriers > 0) list = with_vocabulary_passes(schedule, r, list);
  }
  return schedule;
}

std::vector<std::vector<Action>> one_f_one_b_with_updates(const ScheduleShape& shape, int every) {
  auto lists = generate_one_f_one_b({.ranks = shape.ranks, .microbatches = shape.microbatches}).actions;
  for (std::vector<Action>& list : lists) {
    std::vector<Action> with_steps;
    with_steps.reserve(2 * list.size());
    for (const Action& action : list) {
      with_steps.push_back(action);
      const bool ends_update = action.kind == ActionKind::backward && (action.microbatch + 1) % every == 0;
      if (ends_update) with_steps.push_back({ActionKind::optimizer_step, action.stage, action.microbatch / every});
    }
    list = std::move(with_steps);
  }
  return lists;
}

}  // namespace plumb
