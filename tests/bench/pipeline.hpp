// The case that all benchmarks measure: 1F1B with 64 stages and 1,024 microbatches.
#pragma once

#include "common/graph/schedule_graph.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb::bench {

// 131,072 F and B, 129,024 transfers: 260,096 activities.
inline constexpr ScheduleShape shape{.ranks = 64, .microbatches = 1024, .chunks = 1};

inline Schedule generated() { return generate_schedule("1f1b", shape); }

inline Schedule lowered(const Schedule& schedule) {
  return lower(schedule, {.optimizer = false, .tied_embeddings = false});
}

// 16 MiB cross each boundary. Where all stages take the same time, ranks move in lockstep and much ends at one moment.
inline PipelineCosts costs(bool even_stages = false) {
  PipelineCosts costs =
      even_costs(shape.ranks, {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}});
  double factor = 1;
  for (ComputeCost& stage : costs.stages) {
    if (even_stages) break;
    stage.forward.value *= factor;
    stage.input_gradient.value *= factor;
    factor = factor > 1.2 ? 1 : factor + 0.013;
  }
  costs.boundary_bytes = {16 << 20};
  costs.inside = {.latency = {5e-6}, .bandwidth = {300e9}};
  costs.outside = {.latency = {1e-5}, .bandwidth = {50e9}};
  costs.ranks_per_machine = 8;
  return costs;
}

}  // namespace plumb::bench
