#include "common/study/step_model.hpp"

#include <cmath>
#include <utility>

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

// `changed` gives the machine or cluster with the number times a factor, and its value there.
template <class Changed>
StepModel::Sides StepModel::sides(double value, Seconds now, const Changed& changed) const {
  struct Side {
    double moved = 0;  // of the number, and of the step with it
    double step = 0;
  };
  const auto side = [&](double factor) -> Side {
    const auto [other, moved_to] = changed(factor);
    return {.moved = std::log(moved_to / value), .step = std::log(step(other) / now)};
  };
  const Side more = side(up);
  const Side less = side(down);
  const double of_less = less.step / less.moved;
  return {.both = (more.step - less.step) / (more.moved - less.moved),
          .more = more.moved == 0 ? of_less : more.step / more.moved,  // a fraction of 1 cannot grow
          .less = of_less};
}

StepModel::Sides StepModel::elasticities(const MachineNumber& number, Seconds now) const {
  const Machine& machine = plan_.cluster.machine;
  return sides(number.value(machine), now, [&](double factor) {
    Machine other = with_factor(machine, number, factor);
    const double value = number.value(other);
    return std::pair(std::move(other), value);
  });
}

StepModel::Sides StepModel::elasticities(const ClusterNumber& number, Seconds now) const {
  return sides(number.value, now, [&](double factor) {
    return std::pair(with_factor(plan_.cluster, number, factor), number.value * factor);
  });
}

}  // namespace plumb
