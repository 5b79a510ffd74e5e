// Small plans whose stages all take the same time, for emulated runs.
#pragma once

#include "common/plan/plan.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb::exec {

struct EmulatedPlan {
  std::string schedule = "1f1b";
  ScheduleShape shape;
  Seconds time{0.0005};  // of F, I and W of one rank's share, each
  std::int64_t boundary_bytes = 256;
};

inline Plan emulated_plan(const EmulatedPlan& wanted) {
  Plan plan;
  plan.name = wanted.schedule;
  plan.model.name = "none";
  plan.model.vocabulary = 16;
  plan.model.hidden = 4;
  plan.training.sequence = 8;
  plan.training.global_batch = wanted.shape.microbatches;
  plan.schedule = generate_schedule(wanted.schedule, wanted.shape);
  plan.costs = even_costs(stages(plan.schedule), {.forward = wanted.time,
                                                  .input_gradient = wanted.time,
                                                  .weight_gradient = wanted.time,
                                                  .chunks = wanted.shape.chunks});
  plan.costs.boundary_bytes = {wanted.boundary_bytes};
  plan.cluster.ranks = wanted.shape.ranks;
  plan.layout.pipeline = wanted.shape.ranks;
  plan.split.layers.assign(static_cast<std::size_t>(stages(plan.schedule)), 1);
  return plan;
}

}  // namespace plumb::exec
