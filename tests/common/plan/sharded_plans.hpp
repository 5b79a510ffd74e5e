// Plans whose data-parallel ranks share out states, gradients or weights, and what their ranks have and receive.
#pragma once

#include <string>

#include "common/planner/planner.hpp"
#include "tests/common/plan/layouts.hpp"

namespace plumb::testing {

inline constexpr int microbatches = 16;
inline constexpr double weight = 2;    // bytes of one in bf16
inline constexpr double gradient = 4;  // in fp32

inline LayoutCase sharded(const std::string& sharding, int data, int pipeline = 1,
                          const std::string& schedule = "1f1b") {
  return {.nodes = 4,
          .pipeline = pipeline,
          .data = data,
          .schedule = schedule,
          .batch = microbatches,
          .sharding = sharding};
}

inline double parameters_of_rank(const Plan& plan, int rank) {
  double sum = 0;
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    if (plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)] != rank) continue;
    sum += static_cast<double>(plan.costs.stages[static_cast<std::size_t>(stage)].parameters);
  }
  return sum;
}

// Every weight has a multiple of 16 elements, and no gradient completes late: nothing is tied or divided.
inline double received(const Plan& plan, int rank) {
  const Timeline timeline = predict_by_path(plan);
  return static_cast<double>(timeline.ranks[static_cast<std::size_t>(rank)].by_axis.value().data.value);
}

}  // namespace plumb::testing
