// Keys of a plan's file, for the reference page.
#pragma once

#include <vector>

#include "common/base/document/json_tables.hpp"

namespace plumb {

// A table for each object of a plan, the plan itself first. Descriptions are empty where the key is that of a scenario,
// a machine, a software or a model.
[[nodiscard]] std::vector<JsonTable> plan_tables();

}  // namespace plumb
