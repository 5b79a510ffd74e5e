// Reads a scenario's file, and holds it to what can be planned.
#pragma once

#include <filesystem>
#include <string>

#include "common/scenario/scenario.hpp"

namespace plumb {

// Throws InputError with file, line and column, what was expected and a hint, for: unknown keys (did you mean), wrong
// types or units, values out of range, files that are missing, features that are named by design and not built yet,
// layers that do not fit the split, a batch that microbatch × data degree does not divide, a layout that does not fit
// the ranks. Files named inside are looked for beside the scenario, then in the folder of scenarios that plumb ships.
// Choices from a command line stand in the place of the file's own; a profile named there is looked for as it is.
struct ScenarioOverrides {
  std::string split = {};  // this and the next as in a scenario; empty: the file's own
  std::string schedule = {};
  std::string profile = {};  // a file
  std::string framework = {};
  int nodes = 0;  // in place of `nodes: auto` beside an open layout; 0: that is refused
};
[[nodiscard]] Scenario read_scenario(const std::filesystem::path& path, const ScenarioOverrides& overrides = {});

}  // namespace plumb
