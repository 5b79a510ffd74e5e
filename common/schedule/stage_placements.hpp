// Which rank has which stage, as schedules arrange them.
#pragma once

#include <vector>

namespace plumb {

// Stage s on rank s mod p: the "loop" placement of interleaved schedules.
[[nodiscard]] std::vector<int> loop_placement(int ranks, int chunks);
// There and back again: chunk c of rank r is stage c·p + r for even c and c·p + p−1−r for odd c. With two chunks the
// "V" of ZB-V, with more the waves of Hanayo.
[[nodiscard]] std::vector<int> wave_placement(int ranks, int chunks);

}  // namespace plumb
