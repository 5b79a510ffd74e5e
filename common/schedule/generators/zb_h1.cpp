// ZB-H1 (Qi et al., arXiv 2401.10241, section 2.1): 1F1B's order and memory with the backward in two, the weight
// gradients filling the bubble at the end.
//
// Order:  w × F with w = min(p−r−1, m); then per microbatch k: F while there are any, I(k), and W(k−r) once k ≥ r; the
//         remaining W.
// Bubble: (p−1)(F+I−W) for m ≥ p and W ≤ min(F, I).
// Memory: min(m, p) on every rank when activations are freed at W; (p−r) + rω if W still holds a fraction ω.
// With a vocabulary divided over the ranks, b barriers: w = min(p−r−1+b, m), and the passes of
// vocabulary_passes.hpp. Memory: min(m, p+b). No form of the bubble is known: with more than four ranks it is longer.
#include <algorithm>

#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/vocabulary_passes.hpp"

namespace plumb {

Schedule generate_zb_h1(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("zb-h1", shape);
  const int m = shape.microbatches;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const int w = std::min(shape.ranks - r - 1 + shape.vocabulary_barriers, m);
    // Phase 1, warm-up: w × F
    for (int k = 0; k < w; ++k) list.push_back({ActionKind::forward, r, k});
    // Phase 2, steady and cool-down: m × ([F], I, [W]), W lagging r microbatches behind I
    for (int k = 0; k < m; ++k) {
      if (w + k < m) list.push_back({ActionKind::forward, r, w + k});
      list.push_back({ActionKind::input_gradient, r, k});
      if (k >= r) list.push_back({ActionKind::weight_gradient, r, k - r});
    }
    // Phase 3: the remaining min(r, m) × W
    for (int k = std::max(0, m - r); k < m; ++k) list.push_back({ActionKind::weight_gradient, r, k});
    if (shape.vocabulary_barriers > 0) list = with_vocabulary_passes(schedule, r, list);
  }
  return schedule;
}

}  // namespace plumb
