// DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1; step() of github.com/deepseek-ai/DualPipe): two pipelines in
// opposite directions that overlap F of one with B of the other. Stage s stands on rank s and, in the second replica,
// on rank p−1−s; p even, m even, m ≥ 2p.
//
// Order:  dualpipe_steps.cpp. The rank is h = min(r, p−1−r) from its end of the pipeline, H = p/2. F0 and B0 belong to
// the replica
//         whose first stages stand at that end, F1 and B1 to the other; & overlaps two actions.
//         1: 2(H−h−1) × F0           5: (H−h−1) × (B1, F1&B0)
//         2: (h+1) × (F0, F1)        6: (h+1) × (B1, B0), from its middle on I instead of B
//         3: (H−h−1) × (I1, W, F1)   7: (H−h−1) × (W, I0)
//         4: (m/2−p+h+1) × (F0&B1, F1&B0), the first F0, B1 apart on the two middle ranks
//         8: (h+1) × W               W: the oldest I that has none
// Bubble: (H−1)(F&B + B − 3W) for F = I ≥ W, where F&B is the time of an overlapped pair, F+B if that saves nothing.
// Memory: p+1. Parameters are held twice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/error.hpp"
#include "common/schedule/generators/dualpipe_steps.hpp"
#include "common/schedule/generators/generators.hpp"

namespace plumb {
namespace {

void require_pairs(const ScheduleShape& shape) {
  const std::string where = "schedule dualpipe";
  const int p = shape.ranks;
  if (p % 2 != 0) {
    throw InputError(where, fmt::format("{} ranks, but the two pipelines need an even number", p),
                     p == 1 ? "take 2 ranks" : fmt::format("take {} or {} ranks", p - 1, p + 1));
  }
  if (shape.microbatches < 2 * p) {
    throw InputError(where, fmt::format("{} microbatches on {} ranks, but it needs 2 per rank", shape.microbatches, p),
                     fmt::format("take {} microbatches or more", 2 * p));
  }
  if (shape.microbatches % 2 != 0) {
    throw InputError(where, fmt::format("{} microbatches, but each pipeline takes half of them", shape.microbatches),
                     fmt::format("take {} or {} microbatches", shape.microbatches - 1, shape.microbatches + 1));
  }
}

}  // namespace

Schedule generate_dualpipe(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("dualpipe", shape);
  require_pairs(shape);
  schedule.second_rank_of_stage.assign(schedule.rank_of_stage.rbegin(), schedule.rank_of_stage.rend());
  const int p = shape.ranks;
  const int m = shape.microbatches;
  for (int r = 0; r < p; ++r) {
    // The direction that enters near this rank is the first replica's in the first half of the ranks.
    std::array<DualPipeDirection, 2> directions{DualPipeDirection{.stage = r, .first_microbatch = 0},
                                                DualPipeDirection{.stage = p - 1 - r, .first_microbatch = m / 2}};
    if (r >= p / 2) std::swap(directions[0], directions[1]);
    append_dualpipe_steps(
        schedule, r, {.half = p / 2, .h = std::min(r, p - 1 - r), .microbatches = m / 2, .directions = directions});
  }
  std::ranges::sort(schedule.overlapped);
  return schedule;
}

}  // namespace plumb
