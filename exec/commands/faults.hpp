// Wrong schedules on purpose: to see that the validator refuses them, and that the check would notice.
#pragma once

#include <string>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb::exec {

// "swapped-receive", "dropped-weight-gradient".
[[nodiscard]] const std::vector<std::string>& fault_names();

// A lowered schedule with this fault. Throws InputError for an unknown name, or where the schedule has no place for it.
[[nodiscard]] Schedule with_fault(Schedule lowered, const std::string& fault);

}  // namespace plumb::exec
