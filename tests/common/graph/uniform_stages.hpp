// For tests against closed forms: random whole times of equal stages, and what a schedule takes with them.
#pragma once

#include <random>

#include "common/graph/evaluate.hpp"
#include "common/schedule/registry.hpp"
#include "tests/common/schedule/naive_pipeline.hpp"

namespace plumb {

// Of one stage, in whole units, so that equality is exact.
struct StageTimes {
  int f = 1;
  int i = 1;
  int w = 1;
  int hop = 0;
  int b() const { return i + w; }
  int all() const { return f + i + w; }
};

inline StageTimes random_stage_times(std::mt19937& random) {
  std::uniform_int_distribution<int> any(0, 40);
  std::uniform_int_distribution<int> positive(1, 40);
  StageTimes times;
  times.f = positive(random);
  times.i = positive(random);
  times.w = any(random);
  return times;
}

inline double makespan_of(const Schedule& schedule, const StageTimes& times) {
  const auto seconds = [&](int value) { return Seconds{static_cast<double>(value * schedule.chunks)}; };
  const PipelineCosts costs = even_costs(stages(schedule), {.forward = seconds(times.f),
                                                            .input_gradient = seconds(times.i),
                                                            .weight_gradient = seconds(times.w),
                                                            .hop = Seconds{static_cast<double>(times.hop)},
                                                            .chunks = schedule.chunks});
  return evaluate(build_graph(lower(schedule, {}), costs)).makespan.value;
}

inline int naive_makespan_of(const Schedule& schedule, const StageTimes& times) {
  return naive_run(schedule, even_ticks(stages(schedule), times.f, times.i, times.w, times.hop)).makespan;
}

}  // namespace plumb
