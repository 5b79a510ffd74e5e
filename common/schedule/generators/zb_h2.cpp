// ZB-H2 (Qi et al., arXiv 2401.10241, section 2.2): twice the warm-up of ZB-H1, so that ranks wait only before they
// start and, if their optimizer steps need not meet, after they end.
//
// Order:  w × F with w = min(2(p−r−1), m); then per microbatch k: F while there are any, I(k), and W(k−2r) once k ≥ 2r;
//         the remaining W.
// Bubble: for m ≥ 2p−1 and W ≤ min(F, I): (p−1)(F+I−2W) of the longest span, (p−1)·max(F, F+I−2W) of the makespan.
// Memory: min(m, 2p−1) on every rank when activations are freed at W; 2(p−r)−1 + 2rω if W still holds a fraction ω.
#include <algorithm>

#include "common/schedule/generators/generators.hpp"

namespace plumb {

Schedule generate_zb_h2(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("zb-h2", shape);
  const int m = shape.microbatches;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const int w = std::min(2 * (shape.ranks - r - 1), m);
    const int lag = 2 * r;
    // Phase 1, warm-up: w × F
    for (int k = 0; k < w; ++k) list.push_back({ActionKind::forward, r, k});
    // Phase 2, steady and cool-down: m × ([F], I, [W]), W lagging 2r microbatches behind I
    for (int k = 0; k < m; ++k) {
      if (w + k < m) list.push_back({ActionKind::forward, r, w + k});
      list.push_back({ActionKind::input_gradient, r, k});
      if (k >= lag) list.push_back({ActionKind::weight_gradient, r, k - lag});
    }
    // Phase 3: the remaining min(2r, m) × W
    for (int k = std::max(0, m - lag); k < m; ++k) list.push_back({ActionKind::weight_gradient, r, k});
  }
  return schedule;
}

}  // namespace plumb
