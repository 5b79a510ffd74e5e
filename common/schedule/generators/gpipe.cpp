// GPipe (Huang et al., arXiv 1811.06965, section 2.3).
//
// Order:  F0 … F(m−1), then B0 … B(m−1).
// Bubble: (p−1)(F+B); with uneven stages the makespan is ΣF + (m−1)·max F + ΣB + (m−1)·max B.
// Memory: m.
#include "common/schedule/generators/generators.hpp"

namespace plumb {

Schedule generate_gpipe(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("gpipe", shape);
  const int m = shape.microbatches;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    // Phase 1: m × F
    for (int k = 0; k < m; ++k) list.push_back({ActionKind::forward, r, k});
    // Phase 2: m × B
    for (int k = 0; k < m; ++k) list.push_back({ActionKind::backward, r, k});
  }
  return schedule;
}

}  // namespace plumb
