// What to say when no candidate fits in memory: by how much, what takes it, and what would fit.
#pragma once

#include <string>
#include <vector>

#include "common/planner/planner.hpp"

namespace plumb {

// "rank 0 needs 91.20 GiB of 74.00 GiB, 17.20 GiB too much, in stage 0's backward of microbatch 1: kept activations
// 60.10 GiB, parameters 20.00 GiB".
[[nodiscard]] std::string describe_shortfall(const Candidate& candidate);

// Throws the InputError of `best_fitting`: of the nearest candidate by how much, or, where none can be built, the first
// reason and hint of each kind.
[[noreturn]] void throw_nothing_fits(const PlanningResult& result, const Scenario& scenario);

}  // namespace plumb
