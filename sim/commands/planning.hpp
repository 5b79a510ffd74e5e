// From a scenario to its weighed candidates, whether it leaves layouts open (then it is searched) or not.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "common/search/search.hpp"

namespace plumb::sim {

struct PlanningOptions {
  int top = 10;            // rows of the table
  int jobs = 0;            // threads; 0: as many as cores may be used
  bool all_sizes = false;  // also what the memory bound excludes
  bool all_times = false;  // also what the time bound excludes
  bool pareto = false;
  std::optional<double> time_limit = {};  // seconds
};

struct ParetoRow {
  PlanChoice choice = {};
  Seconds iteration = {};
  Bytes peak_bytes = {};
};

struct Planned {
  PlanningResult planning = {};
  bool searched = false;           // layouts or recompute modes were open
  bool finished = true;            // false: the best so far
  std::int64_t not_predicted = 0;  // then: of those that were weighed, what the engine was to predict yet
  std::int64_t candidates = 0;
  std::vector<LeftOut> explanation = {};
  std::vector<ParetoRow> pareto = {};  // by the longest path where it was searched, else by the engine
  double seconds = 0;                  // that it took
};

// Returns true if a candidate of the scenario's own splits fits.
[[nodiscard]] bool has_fitting(const PlanningResult& result);

// Shows progress with the best so far. The first Ctrl-C or SIGTERM keeps the best so far, another one a second or more
// later ends the program.
[[nodiscard]] Planned plan_openly(const Scenario& scenario, const Evaluator& engine, const PlanningOptions& options);

}  // namespace plumb::sim
