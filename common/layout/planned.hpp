// What a layout can name and this version does not have: one rule for scenarios and plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/layout/layout.hpp"

namespace plumb {

struct PlannedKey {
  std::vector<std::string> path = {};  // in the layout's block: {"tensor", "kind"}
  std::string problem = {};
  std::string hint = {};  // what there is instead
};

// The first such key; none: all of the layout is built.
[[nodiscard]] std::optional<PlannedKey> planned_key(const Layout& layout);

}  // namespace plumb
