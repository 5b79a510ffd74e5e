// Eager 1F1B (Zhuang et al., arXiv 2211.05322, section 4): 1F1B that runs one more forward ahead per following rank, so
// that a message has a whole forward and backward to arrive.
//
// Order:  w × F, (m−w) × (B, F), w × B with w = min(2(p−r)−1, m).
// Bubble: (p−1)(F+B) + 2(p−1)c with a latency c ≤ ½·(F+B) per hop: each hop is waited for once on the way in and once
//         on the way out.
// Memory: min(m, 2(p−r)−1).
#include <algorithm>

#include "common/schedule/generators/generators.hpp"

namespace plumb {

Schedule generate_eager_1f1b(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("eager-1f1b", shape);
  const int m = shape.microbatches;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const int w = std::min(2 * (shape.ranks - r) - 1, m);
    // Phase 1, warm-up: w × F
    for (int k = 0; k < w; ++k) list.push_back({ActionKind::forward, r, k});
    // Phase 2, steady: (m−w) × (B, F)
    for (int k = 0; k < m - w; ++k) {
      list.push_back({ActionKind::backward, r, k});
      list.push_back({ActionKind::forward, r, w + k});
    }
    // Phase 3, cool-down: w × B
    for (int k = m - w; k < m; ++k) list.push_back({ActionKind::backward, r, k});
  }
  return schedule;
}

}  // namespace plumb
