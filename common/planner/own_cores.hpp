// A plan whose ranks share cores, as if each had one of its own.
#pragma once

#include "common/plan/plan.hpp"

namespace plumb {

// What computes takes as long as on a core of its own: a graph of all ranks is simulated with that, where ranks that
// share cores then take them from each other. Where costs are those that the plan's parts predict, they are predicted
// anew; else (measured, edited) what is no collective of a tensor group is divided by `core_slowdown`. The plan itself
// where no stage's ranks are more than the cores of their machine.
[[nodiscard]] Plan on_own_cores(const Plan& plan);

}  // namespace plumb
