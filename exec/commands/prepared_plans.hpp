// What a session runs of a plan: refused where it cannot, lowered, and with its launches.
#pragma once

#include <vector>

#include "exec/commands/rank_work.hpp"
#include "exec/commands/session.hpp"

namespace plumb::exec {

// Throws InputError for options that do not go together, or not with a plan; for plans of different numbers of ranks;
// and, unless unchecked ones are asked for, for schedules that are not valid.
[[nodiscard]] std::vector<PreparedPlan> prepare_all(std::vector<Plan> plans, const SessionOptions& options);

}  // namespace plumb::exec
