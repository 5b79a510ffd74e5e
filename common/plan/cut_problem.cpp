#include "common/plan/cut_problem.hpp"

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {

CutProblem cut_problem(const Scenario& scenario, const Plan& plan) {
  Scenario settled = scenario;
  settled.layout = plan.layout;
  settled.training = plan.training;
  settled.software = plan.software;
  // As if B were one action, also where the schedule runs I and W apart: their planners know no other.
  const std::vector<ComputeCost> blocks =
      settled_blocks(plan, settled, block_costs(settled, plan.training.microbatch, slices_of(plan)), false);
  CutProblem problem{.forward = {},
                     .backward = {},
                     .parameters = {},
                     .messages = {},
                     .microbatches = static_cast<std::int64_t>(plan.schedule.microbatches)};
  for (const ComputeCost& block : blocks) {
    problem.forward.push_back(block.forward);
    problem.backward.push_back(backward_time(block) + (recomputes_by_action(plan) ? block.forward : Seconds{}));
    problem.parameters.push_back(block.parameters);
  }
  for (int stage = 0; stage + 1 < stages(plan.schedule); ++stage) {
    const int from = rank_in_replica(plan.schedule, 0, stage);
    const int to = rank_in_replica(plan.schedule, 0, stage + 1);
    problem.messages.push_back(
        from == to ? Seconds{} : transfer_time(transfer_between(plan.costs, from, to), plan.costs.boundary_bytes));
  }
  return problem;
}

std::vector<Split> cuts_of_planners(const CutProblem& problem) {
  std::vector<Split> splits;
  for (const Baseline& baseline : baselines()) {
    try {
      splits.push_back(baseline.split(problem));
    } catch (const InputError&) {  // it has a requirement that this chain does not meet
    }
  }
  return splits;
}

}  // namespace plumb
