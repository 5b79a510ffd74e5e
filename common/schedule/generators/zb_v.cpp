// ZB-V (Qi et al., arXiv 2401.10241, section 6; as ScheduleZBVZeroBubble of torch.distributed.pipelining): two chunks
// per rank, rank r holding stages r and 2p−1−r, so that the loss is on the rank where the microbatches enter.
//
// Order, digits for the chunk, for n = max(m, 2p−1) microbatches, of which those from m on are left out again:
//         (2(p−r)−1) × F0; r × (F1, F0); (p−r) × (F1, I1, W1); (n−p) × ([F0], I0, W0, F1, I1, W1) with F0 as long as
//         there are any; r × (I0, I1); (p−r) × (I0, W0); the remaining W1, then W0.
// Bubble: for m ≥ 2p−1 and W ≤ F ≤ I, in one chunk's times: 2(p−1)(I−W) of the longest span, (p−1)·max(I, 2(I−W)) of
//         the makespan.
// Memory: p on every rank for m ≥ 2p−1, else at most min(m, p).
#include <algorithm>

#include "common/schedule/generators/generators.hpp"

namespace plumb {

Schedule generate_zb_v(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("zb-v", shape);
  schedule.rank_of_stage = wave_placement(shape.ranks, 2);
  const int p = shape.ranks;
  const int n = std::max(shape.microbatches, 2 * p - 1);
  static_cast<void>(empty_schedule("zb-v", {.ranks = p, .microbatches = n, .chunks = 2}));  // refuses what is too large
  for (int r = 0; r < p; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const int stage[2] = {r, 2 * p - 1 - r};
    int f[2] = {}, i[2] = {}, w[2] = {};  // of each chunk the next microbatch
    const auto forward = [&](int chunk) { list.push_back({ActionKind::forward, stage[chunk], f[chunk]++}); };
    const auto input = [&](int chunk) { list.push_back({ActionKind::input_gradient, stage[chunk], i[chunk]++}); };
    const auto weight = [&](int chunk) { list.push_back({ActionKind::weight_gradient, stage[chunk], w[chunk]++}); };
    // Phase 1, warm-up: (2(p−r)−1) × F0
    for (int k = 0; k < 2 * (p - r) - 1; ++k) forward(0);
    // Phase 2: r × (F1, F0)
    for (int k = 0; k < r; ++k) {
      forward(1);
      forward(0);
    }
    // Phase 3: (p−r) × (F1, I1, W1)
    for (int k = 0; k < p - r; ++k) {
      forward(1);
      input(1);
      weight(1);
    }
    // Phase 4, steady: ([F0], I0, W0, F1, I1, W1) until all forwards have run
    while (f[1] < n) {
      if (f[0] < n) forward(0);
      input(0);
      weight(0);
      forward(1);
      input(1);
      weight(1);
    }
    // Phase 5, cool-down: r × (I0, I1)
    for (int k = 0; k < r; ++k) {
      input(0);
      input(1);
    }
    // Phase 6: (p−r) × (I0, W0)
    for (int k = 0; k < p - r; ++k) {
      input(0);
      weight(0);
    }
    // Phase 7: the remaining W1, then W0
    while (w[1] < n) weight(1);
    while (w[0] < n) weight(0);
    std::erase_if(list, [&](const Action& action) { return action.microbatch >= shape.microbatches; });
  }
  return schedule;
}

}  // namespace plumb
