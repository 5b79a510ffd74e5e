// The shortest makespan of tiny problems by branch and bound.
#pragma once

#include <optional>

#include "common/schedule/zb_auto/zb_auto.hpp"

namespace plumb {

// Whether some schedule, with every stage's F, I and W in the order of the microbatches and within the limits, ends
// before `makespan`. None if that is not known after `nodes` steps. Whole times.
[[nodiscard]] std::optional<bool> can_end_before(const AutoProblem& problem, int makespan, long nodes);

}  // namespace plumb
