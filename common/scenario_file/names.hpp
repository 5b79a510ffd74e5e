// Names that plumb ships, for completion and lists.
#pragma once

#include "common/base/completion.hpp"

namespace plumb {

// Names for the values of options and arguments: SCENARIO, MODEL, MACHINE, SOFTWARE, NAME (a schedule).
[[nodiscard]] NamesOfValue names_of_values();

}  // namespace plumb
