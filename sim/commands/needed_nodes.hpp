// Finds how many nodes a scenario with `nodes: auto` needs.
#pragma once

#include <string>
#include <vector>

#include "common/scenario/scenario.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "sim/commands/planning.hpp"

namespace plumb::sim {

struct PlannedOnNodes {
  Scenario scenario = {};
  Planned planned = {};
  std::vector<int> too_few = {};  // numbers of nodes on which nothing fits or can be built
};

// Plans a scenario; with `nodes: auto` on 1, 2, 4, … nodes until something fits, or the largest number is tried. Throws
// the first InputError if it can be read with no number of nodes.
[[nodiscard]] PlannedOnNodes plan_on_nodes(const ScenarioFile& file, const ScenarioOverrides& given,
                                           const Evaluator& engine, const PlanningOptions& options);

// "4 are enough, 1, 2 are not".
[[nodiscard]] std::string needed_nodes_text(const PlannedOnNodes& found);

}  // namespace plumb::sim
