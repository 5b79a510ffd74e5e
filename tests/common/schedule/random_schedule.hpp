// Random valid schedules for property tests: no generator's structure, only the dependencies.
#pragma once

#include <random>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// A random order in which all actions could run one after the other, dealt out to the ranks: valid by construction, and
// free of deadlock. Placement, shape, B or I and W, and recompute are random as well.
[[nodiscard]] Schedule random_schedule(std::mt19937& random);

}  // namespace plumb
