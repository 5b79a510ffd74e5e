#include "common/plan/step_model.hpp"

#include <cmath>

#include "common/graph/evaluate.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {

namespace {

// A central difference of 0.1%.
constexpr double up = 1.001;
constexpr double down = 0.999;

}  // namespace

StepModel::StepModel(const Plan& plan) : plan_(plan), lowered_(lowered_schedule(plan)) {}

Seconds StepModel::step(const Machine& machine) const {
  Cluster cluster = plan_.cluster;
  cluster.machine = machine;
  return step(cluster);
}

Seconds StepModel::step(const Cluster& cluster) const {
  Plan plan = plan_;
  plan.cluster = cluster;
  return evaluate(build_graph(lowered_, predicted_costs(plan))).makespan;
}

double StepModel::elasticity(const ClusterNumber& number) const {
  const Seconds more = step(with_factor(plan_.cluster, number, up));
  const Seconds less = step(with_factor(plan_.cluster, number, down));
  return std::log(more / less) / std::log(up / down);
}

double StepModel::elasticity(const MachineNumber& number) const {
  const Machine& machine = plan_.cluster.machine;
  const Machine more = with_factor(machine, number, up);
  const Machine less = with_factor(machine, number, down);
  const double moved = std::log(number.value(more) / number.value(less));  // a fraction of 1 cannot grow
  return std::log(step(more) / step(less)) / moved;
}

}  // namespace plumb
