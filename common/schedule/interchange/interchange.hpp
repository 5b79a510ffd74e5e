// Lists of actions as plain text, "0F0 0F1 1B0": how plan files and tests write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/schedule/action.hpp"

namespace plumb {

// Separated by single spaces.
[[nodiscard]] std::string to_text(const std::vector<Action>& actions);

// The inverse; any spaces and line ends separate. Throws InputError (where = "action N" with N from 1) for anything
// else.
[[nodiscard]] std::vector<Action> parse_actions(std::string_view text);

}  // namespace plumb
