// Reads a scenario's file, and holds it to what can be planned.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/document/yaml.hpp"
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

// Loads a scenario's file once, since a pipe can be read only once, and reads it with any overrides.
class ScenarioFile {
 public:
  explicit ScenarioFile(const std::filesystem::path& path);
  [[nodiscard]] Scenario read(const ScenarioOverrides& overrides = {}) const;
  // Returns true for `nodes: auto`; false also where that cannot be read.
  [[nodiscard]] bool has_nodes_auto() const;

 private:
  YamlValue file_;
  std::string name_;
};

}  // namespace plumb
