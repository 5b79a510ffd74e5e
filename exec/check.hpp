// Trains the plan's model on one device with the same F, I and W, and says how far a run was from it.
#pragma once

#include <memory>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/data.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec {

// Compares losses (of each step) and gradients (of the last step) with those of the single device: bitwise, and if they
// differ by design.md's ratio of errors against fp64, routing of experts replayed.
[[nodiscard]] CheckResult check(const Plan& plan, const std::shared_ptr<const Corpus>& corpus,
                                const std::vector<double>& losses, const NamedGradients& gradients);

}  // namespace plumb::exec
