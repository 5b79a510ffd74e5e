// The experts of a run, for a reference that is to choose the same.
#pragma once

#include "common/plan/plan.hpp"
#include "exec/stage/factory.hpp"
#include "exec/stage/modules/module.hpp"

namespace plumb::exec {

// `chosen` as chosen_experts gives it, of the whole batch. Throws RunError that names what is missing.
[[nodiscard]] RoutingLog replayed(const Plan& plan, const NamedGradients& chosen);

}  // namespace plumb::exec
