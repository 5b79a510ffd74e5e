#include "common/search/baseline.hpp"

#include "common/base/error.hpp"
#include "common/plan/cut_problem.hpp"

namespace plumb {

Candidate weigh_baseline(const Scenario& scenario, const Candidate& best, const Baseline& baseline,
                         const Evaluator& evaluator) {
  if (scenario.stage_data_pipelines && baseline.replicas) {
    return replica_baseline(scenario, best, baseline, evaluator);
  }
  PlanChoice choice = best.choice;
  try {
    const Split split = baseline.split(cut_problem(scenario, best.plan));
    choice.split = {.method = SplitMethod::counts, .counts = split.layers};
  } catch (const InputError& error) {
    return {.choice = choice, .own = false, .reason = error.problem()};
  }
  Candidate candidate = weigh_candidate(scenario, choice, evaluator);
  candidate.own = false;
  return candidate;
}

}  // namespace plumb
