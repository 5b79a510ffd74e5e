// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2): stage s on rank s mod p, v chunks per rank.
//
// Table:  groups of g microbatches, per group each chunk in turn (`interleaved_table`); g = p unless asked otherwise.
//
// Order:  w × F, (mv−w) × (F, B), w × B with w = min(2(p−r−1) + (v−1)g, mv).
//
// Bubble: (p−1)(F+B)/v for m ≥ p.
//
// Memory: [2(p−r−1) + (v−1)g + 1]/v, at most m.
//
// Overlap: with expert parallelism Megatron-LM (combined_1f1b.py, --overlap-moe-expert-parallel-comm) warms up by one F
//         more and runs each steady (F, B) as a pair, in which one hides the other's all-to-all. A pair that takes F&B
//         instead of F+B: makespan [(p−1)(F+B) + (p(v−1)+1)(F+B) + (mv−p(v−1)−1)·F&B]/v. Memory: one chunk more.
#include <algorithm>

#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/interleaved_table.hpp"

namespace plumb {

Schedule generate_interleaved_1f1b(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("interleaved-1f1b", shape);
  const int p = shape.ranks;
  const int v = shape.chunks;
  const InterleavedTable table = interleaved_table(schedule.name, shape);
  const int total = table.total();
  for (int r = 0; r < p; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const auto forward = [&](int k) { list.push_back(table.forward(r, k)); };
    const auto backward = [&](int k) { list.push_back(table.gradient(ActionKind::backward, r, k)); };
    const int w = static_cast<int>(std::min<std::int64_t>(
        std::int64_t{2} * (p - r - 1) + std::int64_t{v - 1} * table.group + (shape.overlap ? 1 : 0), total));
    // Phase 1, warm-up: w × F
    for (int k = 0; k < w; ++k) forward(k);
    // Phase 2, steady: (mv−w) × (F, B)
    for (int k = 0; k < total - w; ++k) {
      forward(w + k);
      backward(k);
      if (shape.overlap) schedule.overlapped.push_back({list[list.size() - 2], list.back()});
    }
    // Phase 3, cool-down: w × B
    for (int k = total - w; k < total; ++k) backward(k);
  }
  std::ranges::sort(schedule.overlapped);
  return schedule;
}

}  // namespace plumb
