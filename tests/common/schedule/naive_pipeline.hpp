// A second, naive evaluation of schedules for tests: a loop over time, one tick after the other. Shares no code with
// the graph.
#pragma once

#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// Whole ticks per action of each stage.
struct NaiveTimes {
  std::vector<int> forward;
  std::vector<int> input_gradient;
  std::vector<int> weight_gradient;
  int hop = 0;  // between two ranks
};

[[nodiscard]] NaiveTimes even_ticks(int stages, int forward, int input_gradient, int weight_gradient, int hop = 0);

// When the last action of a compute-only schedule ends, and the longest time from a rank's first start to its last end.
// −1 if it stands still forever.
struct NaiveResult {
  int makespan = 0;
  int longest_span = 0;
};
[[nodiscard]] NaiveResult naive_run(const Schedule& schedule, const NaiveTimes& times);

}  // namespace plumb
