// Layouts that are executed, by device and transport.
#pragma once

#include "exec/commands/session.hpp"

namespace plumb::exec {

// Throws one InputError for all features of the plan's layout, schedule and offload that the table of capabilities does
// not have for the device and transport, and for shapes that the tensor degree does not divide. The model's own kinds
// are refused where they are computed (require_executed).
void require_executed_layout(const Plan& plan, const SessionOptions& options);

}  // namespace plumb::exec
