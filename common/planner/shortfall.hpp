// Messages for a scenario of which no candidate fits in memory: the missing bytes, their owners, and remedies.
#pragma once

#include <string>
#include <vector>

#include "common/planner/planner.hpp"

namespace plumb {

// "rank 0 needs 91.20 GiB of 74.00 GiB, 17.20 GiB too much, in stage 0's backward of microbatch 1: kept activations
// 60.10 GiB, parameters 20.00 GiB".
[[nodiscard]] std::string describe_shortfall(const Candidate& candidate);

// Throws the InputError of `best_fitting`: the nearest candidate's missing bytes, or the first reason and hint of each
// kind if no candidate can be built.
[[noreturn]] void throw_nothing_fits(const PlanningResult& result, const Scenario& scenario);

}  // namespace plumb
