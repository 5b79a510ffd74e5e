// V-Half (Qi et al., arXiv 2405.15362, section 3): half of 1F1B's memory. Stages r and 2p−1−r on rank r.
//
// Order:  building blocks of 6 slots per microbatch, one slot for each F, I and W of a chunk. Rank r runs F0, F1, I1
//         and I0 (0: its first chunk, 1: its second) in the slots 2r, 3p−r−2, 3p+δ+2r−1 and 6p+δ−r−2, with δ = 3 for
//         even p, else 0.
//         Then the passes of v_schedules.cpp.
// Bubble: 6⌊(p−1)/2⌋−1 for p ≥ 3 and 1 for p = 2, in the time of a chunk's F = I = W, for m ≥ p. With other times the
//         steady phase has no bubble exactly if W+2I ≥ 2F and W+2F ≥ 2I.
// Memory: ⌊(p+2)/2⌋ on the fullest rank.
#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/v_schedules.hpp"

namespace plumb {

Schedule generate_v_half(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("v-half", shape);
  const int p = shape.ranks;
  const int shift = p % 2 == 0 ? 3 : 0;
  std::vector<BuildingBlock> blocks;
  for (int r = 0; r < p; ++r) {
    blocks.push_back({2 * r, 3 * p - r - 2, 3 * p + shift + 2 * r - 1, 6 * p + shift - r - 2});
  }
  return from_building_blocks(std::move(schedule), blocks);
}

}  // namespace plumb
