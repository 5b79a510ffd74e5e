// What commands are given: a plan, a scenario or a model, told apart by content; and choices made on the command line.
#pragma once

#include <string>
#include <vector>

#include "common/plan/planner.hpp"
#include "common/plan/scenario.hpp"

namespace plumb::sim {

enum class InputKind { model, scenario, plan };

// JSON is a plan if it says so and a Hugging Face config otherwise; YAML is a scenario if its top level has any of a
// scenario's own keys. Malformed files are reported by whoever reads them next.
[[nodiscard]] bool is_json(const std::string& path);
[[nodiscard]] InputKind kind_of_input(const std::string& path);

// The plan's costs as the profile measures them.
[[nodiscard]] Plan with_profile(const Plan& plan, const std::string& profile);

}  // namespace plumb::sim
