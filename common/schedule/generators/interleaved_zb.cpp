// Interleaved zero bubble (Qi et al., arXiv 2401.10241, section 2.1 on the chunks of arXiv 2104.04473; as
// ScheduleInterleavedZeroBubble of torch.distributed.pipelining): stage s on rank s mod p, v chunks per rank.
//
// Table:  groups of g microbatches, per group each chunk in turn (`interleaved_table`); g = p unless asked otherwise.
//
// Order:  w × F with w = min((p−r−1) + (v−1)g, mv); then per entry k: F while there are any, I(k), and W(k−r) once
//         k ≥ r; the remaining W.
//
// Bubble: (p−1)(F+I−W)/v for m ≥ p and W ≤ min(F, I).
//
// Memory: min([(v−1)g + p]/v, m) on every rank; p with g = p.
#include <algorithm>

#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/interleaved_table.hpp"

namespace plumb {

Schedule generate_interleaved_zb(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("interleaved-zb", shape);
  const int p = shape.ranks;
  const int v = shape.chunks;
  const InterleavedTable table = interleaved_table(schedule.name, shape);
  const int total = table.total();
  for (int r = 0; r < p; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const auto forward = [&](int k) { list.push_back(table.forward(r, k)); };
    const auto gradient = [&](ActionKind kind, int k) { list.push_back(table.gradient(kind, r, k)); };
    const int w = static_cast<int>(std::min<std::int64_t>(p - r - 1 + std::int64_t{v - 1} * table.group, total));
    // Phase 1, warm-up: w × F
    for (int k = 0; k < w; ++k) forward(k);
    // Phase 2, steady and cool-down: mv × ([F], I, [W]), W lagging r entries behind I
    for (int k = 0; k < total; ++k) {
      if (w + k < total) forward(w + k);
      gradient(ActionKind::input_gradient, k);
      if (k >= r) gradient(ActionKind::weight_gradient, k - r);
    }
    // Phase 3: the remaining min(r, mv) × W
    for (int k = std::max(0, total - r); k < total; ++k) gradient(ActionKind::weight_gradient, k);
  }
  return schedule;
}

}  // namespace plumb
