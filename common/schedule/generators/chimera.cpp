// Chimera (Li and Hoefler, arXiv 2107.06925, section 3) with one pair of pipelines and direct concatenation: 1F1B down
// the ranks and, with a second replica of every stage, 1F1B up the ranks, each in the other's bubbles. Stage s stands
// on rank s and, in the second replica, on rank p−1−s.
//
// Order:  units of p microbatches, half of them down and half up. In slots of one F or B, stage s runs the k-th
//         microbatch of either direction in unit u: F in slot 2pu + s + 2k, B in slot 2pu + 2p−1−s + 2k. F down and B
//         up have the slots of one parity, F up and B down those of the other; no two share one.
// Bubble: (p−2)[max(F, B) + (m/p−1)·|F−B|]: the paper's figures are m = p with (p−2)F if B = F, 2(p−2)F if B = 2F, and
//         m = 2p with (p−2)F and 3(p−2)F.
// Memory: p/2+1 on the first and last rank, one more per rank inwards, p on the two in the middle. Parameters are held
//         twice.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/generators/generators.hpp"

namespace plumb {
namespace {

struct Placed {
  int slot = 0;
  Action action;
};

void require_units(const ScheduleShape& shape) {
  const std::string where = "schedule chimera";
  const int p = shape.ranks;
  const int m = shape.microbatches;
  if (p % 2 != 0) {
    throw InputError(where, fmt::format("{} ranks, but the two pipelines need an even number", p),
                     p == 1 ? "take 2 ranks" : fmt::format("take {} or {} ranks", p - 1, p + 1));
  }
  if (m % p != 0) {
    const int below = m / p * p;
    const std::string hint = below == 0 ? fmt::format("take {} microbatches", p)
                                        : fmt::format("take {} or {} microbatches", below, below + p);
    throw InputError(where, fmt::format("{} microbatches on {} ranks, but they go in units of {}", m, p, p), hint);
  }
}

}  // namespace

Schedule generate_chimera(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("chimera", shape);
  require_units(shape);
  const int p = shape.ranks;
  const int m = shape.microbatches;
  schedule.second_rank_of_stage.assign(schedule.rank_of_stage.rbegin(), schedule.rank_of_stage.rend());
  for (int r = 0; r < p; ++r) {
    std::vector<Placed> placed;
    for (int k = 0; k < m; ++k) {
      const bool up = k >= m / 2;
      const int stage = up ? p - 1 - r : r;
      const int in_direction = up ? k - m / 2 : k;
      const int unit = in_direction / (p / 2);
      const int in_unit = in_direction % (p / 2);
      const int first = 2 * p * unit + 2 * in_unit;
      // Phase 1, of each microbatch: F on its way through the stages, B on its way back
      placed.push_back({first + stage, {ActionKind::forward, stage, k}});
      placed.push_back({first + 2 * p - 1 - stage, {ActionKind::backward, stage, k}});
    }
    // Phase 2: both directions merged, slot by slot
    std::ranges::sort(placed, {}, &Placed::slot);
    for (const Placed& each : placed) schedule.actions[static_cast<std::size_t>(r)].push_back(each.action);
  }
  return schedule;
}

}  // namespace plumb
