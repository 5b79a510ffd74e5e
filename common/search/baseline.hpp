// What a published planner would make of the layout and schedule that a search has chosen.
#pragma once

#include "common/plan/planner.hpp"
#include "common/split/baselines/baselines.hpp"

namespace plumb {

// The chain that a plan cuts, with its stages, messages and microbatches; times of B with recompute. `scenario` is the
// one that the plan is made of.
[[nodiscard]] CutProblem cut_problem(const Scenario& scenario, const Plan& plan);

// `best` with the split of the baseline; not built, with the reason, where the baseline has none.
[[nodiscard]] Candidate weigh_baseline(const Scenario& scenario, const Candidate& best, const Baseline& baseline,
                                       const Evaluator& evaluator);

}  // namespace plumb
