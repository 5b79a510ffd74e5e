// An engine of SimGrid with the options that make it exact. Internal.
#pragma once

#include <memory>

#include "sim/simgrid_versions.hpp"

namespace plumb::sim {

// SimGrid allows one at a time in a process; another may be made when the first is gone.
[[nodiscard]] std::unique_ptr<s4u::Engine> new_engine();

}  // namespace plumb::sim
