// The passes that make a schedule with controllable memory of its building block (Qi et al., arXiv 2405.15362): what
// V-Half and V-Min share.
#pragma once

#include <array>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// The slots, each as long as one chunk's F, I or W, in which a rank runs microbatch 0: F of its first chunk, F of its
// second, I of its second, I of its first. Microbatch k follows 6k slots later, which leaves two slots of six for W.
using BuildingBlock = std::array<int, 4>;

// Fills the lists of a schedule of two chunks per rank, in wave placement, from one block per rank.
[[nodiscard]] Schedule from_building_blocks(Schedule schedule, const std::vector<BuildingBlock>& blocks);

}  // namespace plumb
