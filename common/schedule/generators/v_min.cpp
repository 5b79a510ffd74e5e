// V-Min (Qi et al., arXiv 2405.15362, section 3): a third of 1F1B's memory. Stages r and 2p−1−r on rank r.
//
// Order:  building blocks of 6 slots per microbatch, one slot for each F, I and W of a chunk. Rank r runs F0, F1, I1
//         and I0 (0: its first chunk, 1: its second) in the slots r, 2p−r−1, 2p+δ+r and 4p+δ−r−1, with δ = 2 if 3
//         divides p, else 0.
//         Then the passes of v_schedules.cpp.
// Bubble: 4p−7 if 3 divides p, else 4p−5 (p ≥ 2), in the time of a chunk's F = I = W, for m ≥ max(p, 3).
// Memory: ⌊(p+4)/3⌋ on the fullest rank.
#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/v_schedules.hpp"

namespace plumb {

Schedule generate_v_min(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("v-min", shape);
  const int p = shape.ranks;
  const int shift = p % 3 == 0 ? 2 : 0;
  std::vector<BuildingBlock> blocks;
  for (int r = 0; r < p; ++r) {
    blocks.push_back({r, 2 * p - r - 1, 2 * p + shift + r, 4 * p + shift - r - 1});
  }
  return from_building_blocks(std::move(schedule), blocks);
}

}  // namespace plumb
