#include "exec/run/patience.hpp"

#include "common/layout/layout.hpp"

namespace plumb::exec {

Seconds serial_time(const Plan& plan) {
  Seconds microbatch{0};
  Seconds once{0};
  for (const ComputeCost& cost : plan.costs.stages) {
    microbatch += microbatch_time(cost, true);  // whether it is redone or not: an upper bound
    once += cost.gradient_reduction + cost.optimizer + cost.weight_gathering;
  }
  return microbatch * plan.schedule.microbatches + once;
}

std::optional<Seconds> own_time(const Plan& plan, const Action& action) {
  const bool meet = plan.layout.tensor.degree > 1 || gathers_in_actions(plan.layout) || reduces_in_actions(plan.layout);
  const bool updates = action.kind == ActionKind::optimizer_step;
  if (meet || !(updates || is_compute(action.kind))) return std::nullopt;
  const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(action.stage)];
  return updates ? cost.optimizer : microbatch_time(cost, false);
}

}  // namespace plumb::exec
