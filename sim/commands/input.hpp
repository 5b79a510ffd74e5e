// Kinds of files that commands take, told apart by content, and a plan under another profile.
#pragma once

#include <string>
#include <vector>

#include "common/planner/planner.hpp"
#include "common/scenario/scenario.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb::sim {

enum class InputKind { model, scenario, plan, machine, software };

// A file is a scenario if its top level has any of a scenario's own keys, in YAML or JSON; JSON is a plan if it says so
// or has a plan's own keys, and other JSON is a Hugging Face config. The reader reports malformed JSON. Throws
// InputError for a timeline.
[[nodiscard]] InputKind kind_of_input(const std::string& path);

// Reads a timeline. Throws InputError that names the kind of another file.
[[nodiscard]] Timeline timeline_in(const std::string& path);

// The plan's costs as the profile measures them.
[[nodiscard]] Plan with_profile(const Plan& plan, const std::string& profile);

}  // namespace plumb::sim
