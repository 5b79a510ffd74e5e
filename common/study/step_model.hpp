// The step of a plan as a function of its machine's numbers, by the longest path.
#pragma once

#include "common/cluster/cluster_numbers.hpp"
#include "common/cluster/machine_numbers.hpp"
#include "common/plan/plan.hpp"

namespace plumb {

class StepModel {
 public:
  // The plan must outlive it.
  explicit StepModel(const Plan& plan);

  // With this machine or cluster instead of the plan's own; schedule and split stay.
  [[nodiscard]] Seconds step(const Machine& machine) const;
  [[nodiscard]] Seconds step(const Cluster& cluster) const;
  // d ln(step) / d ln(number) at the plan's cluster: the central difference of 0.1%, and to either side alone, for a
  // larger number and a smaller one: they differ where several chains of the longest path are equally long. `now`: the
  // step at the plan's cluster.
  struct Sides {
    double both = 0;
    double more = 0;
    double less = 0;
  };
  [[nodiscard]] Sides elasticities(const MachineNumber& number, Seconds now) const;
  [[nodiscard]] Sides elasticities(const ClusterNumber& number, Seconds now) const;
  [[nodiscard]] const Schedule& lowered() const { return lowered_; }

 private:
  template <class Changed>
  [[nodiscard]] Sides sides(double value, Seconds now, const Changed& changed) const;

  const Plan& plan_;
  Schedule lowered_;
};

}  // namespace plumb
