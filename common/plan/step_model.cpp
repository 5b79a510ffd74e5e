#include "common/plan/step_model.hpp"

#include <cmath>

#include "common/graph/evaluate.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {

StepModel::StepModel(const Plan& plan) : plan_(plan), lowered_(lowered_schedule(plan)) {}

Seconds StepModel::step(const Machine& machine) const {
  Plan plan = plan_;
  plan.cluster.machine = machine;
  return evaluate(build_graph(lowered_, predicted_costs(plan))).makespan;
}

double StepModel::elasticity(const MachineNumber& number) const {
  constexpr double up = 1.001;
  constexpr double down = 0.999;
  const Machine& machine = plan_.cluster.machine;
  const Machine more = with_factor(machine, number, up);
  const Machine less = with_factor(machine, number, down);
  const double moved = std::log(number.value(more) / number.value(less));  // a fraction of 1 cannot grow
  return std::log(step(more) / step(less)) / moved;
}

}  // namespace plumb
