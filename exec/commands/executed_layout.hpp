// Which layouts are executed, and over what.
#pragma once

#include "exec/commands/session.hpp"

namespace plumb::exec {

// Throws InputError that says what is allowed: so far pipelines, and on the host plain data parallelism around them.
void require_executed_layout(const Plan& plan, const SessionOptions& options);

}  // namespace plumb::exec
