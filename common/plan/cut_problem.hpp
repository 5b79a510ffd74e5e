// A plan's chain as published planners see it, and where they would cut it.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"
#include "common/split/baselines/baselines.hpp"

namespace plumb {

// The chain that a plan cuts, with its stages, messages and microbatches; times of B with recompute. `scenario` is the
// one that the plan is made of. Of the plan's costs those beside the stages are needed.
[[nodiscard]] CutProblem cut_problem(const Scenario& scenario, const Plan& plan);

// The cuts of every baseline that has some.
[[nodiscard]] std::vector<Split> cuts_of_planners(const CutProblem& problem);

}  // namespace plumb
