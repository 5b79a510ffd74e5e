// Breadth-first, or looped BFS (Lamy-Poirier, arXiv 2211.05953, section 4.1): stage s on rank s mod p, v chunks per
// rank, each of which runs all microbatches before the next one starts.
//
// Order:  per chunk 0 … v−1: F0 … F(m−1); then per chunk v−1 … 0: B0 … B(m−1).
// Bubble: (p−1)(F+B)/v for m ≥ p.
// Memory: m.
#include "common/schedule/generators/generators.hpp"

namespace plumb {

Schedule generate_breadth_first(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("breadth-first", shape);
  const int m = shape.microbatches;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    // Phase 1: v × (m × F)
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int k = 0; k < m; ++k) list.push_back({ActionKind::forward, chunk * shape.ranks + r, k});
    }
    // Phase 2, the chunks in reverse: v × (m × B)
    for (int chunk = shape.chunks - 1; chunk >= 0; --chunk) {
      for (int k = 0; k < m; ++k) list.push_back({ActionKind::backward, chunk * shape.ranks + r, k});
    }
  }
  return schedule;
}

}  // namespace plumb
