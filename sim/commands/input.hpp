// What commands are given: a plan, a scenario or a model, told apart by content; and choices made on the command line.
#pragma once

#include <string>
#include <vector>

#include "common/planner/planner.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb::sim {

enum class InputKind { model, scenario, plan };

// A file is a scenario if its top level has any of a scenario's own keys, in YAML or JSON; JSON is a plan if it says so
// or has a plan's own keys, and other JSON a Hugging Face config. Malformed JSON is reported by whoever reads it next.
// Throws InputError for a timeline and for a machine.
[[nodiscard]] InputKind kind_of_input(const std::string& path);

// The plan's costs as the profile measures them.
[[nodiscard]] Plan with_profile(const Plan& plan, const std::string& profile);

}  // namespace plumb::sim
