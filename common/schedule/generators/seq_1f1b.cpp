// Seq1F1B (Sun et al., arXiv 2406.03488, section 3): 1F1B whose unit is one of n slices of a sequence. Attention of a
// slice needs the slices before it, so forwards run in order and backwards in reverse order within a microbatch.
//
// Order:  over units u = k·n + slice: w × F, (mn−w) × (F, B), w × B with w = min(p−r−2+n, mn); the b-th B is of
//         microbatch ⌊b/n⌋, slice n−1 − b mod n.
// Bubble: (p−1)(F+B)/n for slices of equal time.
// Memory: min((p−r−1+n)/n, m).
#include <algorithm>

#include "common/schedule/generators/generators.hpp"

namespace plumb {

Schedule generate_seq_1f1b(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("seq-1f1b", shape);
  const int n = shape.slices;
  const int units = shape.microbatches * n;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const auto backward = [&](int b) { list.push_back({ActionKind::backward, r, b / n * n + (n - 1 - b % n)}); };
    const int w = std::min(shape.ranks - r - 2 + n, units);
    // Phase 1, warm-up: w × F
    for (int u = 0; u < w; ++u) list.push_back({ActionKind::forward, r, u});
    // Phase 2, steady: (mn−w) × (F, B)
    for (int b = 0; b < units - w; ++b) {
      list.push_back({ActionKind::forward, r, w + b});
      backward(b);
    }
    // Phase 3, cool-down: w × B
    for (int b = units - w; b < units; ++b) backward(b);
  }
  return schedule;
}

}  // namespace plumb
