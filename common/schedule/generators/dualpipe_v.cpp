// DualPipeV (DeepSeek, github.com/deepseek-ai/DualPipe, dualpipev.py): DualPipe (arXiv 2412.19437, section 3.2.1) cut
// in half, two chunks per rank, rank r holding stages r and 2p−1−r, so that there is one replica of the weights.
//
// Order (dualpipe_steps.cpp with H = p, h = r), digits for the chunk, X&Y overlapped, m ≥ 2p:
//   1: 2(p−r−1) × F0
//   2: (r+1) × (F0, F1)
//   3: (p−r−1) × (I1, W, F1)
//   4: (m−2p+r+1) × (F0&B1, F1&B0); the last rank's first F0, B1 one after the other
//   5: (p−r−1) × (B1, F1&B0)
//   6: (r+1) × (B1, B0), from the middle on I for B: at i = ⌊(r+1)/2⌋ before B1 if r is odd, before B0 if it is even
//   7: (p−r−1) × (W, I0)
//   8: (r+1) × W
// W: the oldest that is due.
// Bubble: in one chunk's times, F = I ≥ W: (p−1)(F&B + B − 3W).
// Memory: (2p+1)/2.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/generators/dualpipe_steps.hpp"
#include "common/schedule/generators/generators.hpp"

namespace plumb {
Schedule generate_dualpipe_v(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("dualpipe-v", shape);
  const int p = shape.ranks;
  const int m = shape.microbatches;
  if (m < 2 * p) {
    throw InputError("schedule dualpipe-v", fmt::format("{} microbatches on {} ranks: it needs two per rank", m, p),
                     fmt::format("take at least {} microbatches, or zb-v", 2 * p));
  }
  schedule.rank_of_stage = wave_placement(p, 2);
  for (int r = 0; r < p; ++r) {
    append_dualpipe_steps(schedule, r,
                          {.half = p,
                           .h = r,
                           .microbatches = m,
                           .directions = {DualPipeDirection{.stage = r}, DualPipeDirection{.stage = 2 * p - 1 - r}}});
  }
  std::ranges::sort(schedule.overlapped);
  return schedule;
}

}  // namespace plumb
