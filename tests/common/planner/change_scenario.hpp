// A hint of the planner, written into a scenario's text as a user would.
#pragma once

#include <string>

#include "common/base/document/yaml.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb::testing {

// "microbatch: 2", "layout: {pipeline: 4} with cluster: {ranks: 4} and training: {global_batch: 8}": over the keys that
// the text has. Keys of `training` may stand alone.
inline YamlValue changed_text(const std::string& text, const std::string& change) {
  YamlValue file = YamlValue::parse(text, "scenario.yaml");
  std::string rest = change;
  while (!rest.empty()) {
    std::size_t end = std::string::npos;
    std::size_t next = std::string::npos;
    for (const std::string mark : {" with ", " and "}) {
      const std::size_t at = rest.find(mark);
      if (at >= end) continue;
      end = at;
      next = at + mark.size();
    }
    std::string part = rest.substr(0, end);
    rest = next == std::string::npos ? "" : rest.substr(next);
    for (const std::string key : {"microbatch: ", "recompute: ", "offload: "}) {
      if (part.starts_with(key)) part = "training: {" + part + "}";
    }
    file = YamlValue::parse("{" + part + "}", "scenario.yaml").merged_over(file);
  }
  return file;
}

inline Scenario changed_scenario(const std::string& text, const std::string& change) {
  return read_scenario(changed_text(text, change), "scenario");
}

}  // namespace plumb::testing
