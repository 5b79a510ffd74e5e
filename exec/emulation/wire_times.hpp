// How long the collectives of a plan's ranks take, as it is predicted: where compute is emulated they take that.
#pragma once

#include "common/plan/data_parallel.hpp"
#include "common/plan/plan.hpp"

namespace plumb::exec {

// All but those of tensor groups and those that F, R, I, B and W make for themselves, which are in the actions' times.
class WireTimes {
 public:
  // `plan`, which must outlive this, has one data degree for all its stages.
  explicit WireTimes(const Plan& plan);

  // Of so many bytes of gradients: over the ranks that share one copy of the states; of their own part over HSDP's
  // copies; and between two ranks of a pipeline, which exchange and add.
  [[nodiscard]] Seconds reduction(Bytes gradients) const;
  [[nodiscard]] Seconds sum_over_copies(Bytes own) const;
  [[nodiscard]] Seconds exchange(int pipeline_rank, int peer, Bytes gradients) const;

  // Of a stage's weights, once a step.
  [[nodiscard]] Seconds gathering(int stage) const { return cost(stage).weight_gathering; }
  [[nodiscard]] Bytes gathered(int stage) const { return cost(stage).gathered_bytes; }

  // Of what ranks tell each other of their gradients' norm.
  [[nodiscard]] Seconds clipping() const { return plan_.costs.gradient_clipping; }

 private:
  [[nodiscard]] const ComputeCost& cost(int stage) const {
    return plan_.costs.stages.at(static_cast<std::size_t>(stage));
  }

  const Plan& plan_;
  GradientCollectives of_data_;
};

}  // namespace plumb::exec
