// Trains the plan's model on one device with the same F, I and W, and says how far a run was from it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/program.hpp"
#include "common/plan/plan.hpp"
#include "exec/data.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec {

// Compares losses (of each step) and gradients (of the last step) with those of the single device: bitwise, and if they
// differ by CheckResult's ratio of errors against fp64, routing of experts replayed. Slices of a sequence are slices on
// the single device, too: F of one after the other, I and W in reverse. Of two replicas the single device
// sums the gradients as the ranks do: each replica's microbatches first, then both. A plan with several updates a step
// is compared with its own stages on one device, one microbatch after the other, each stage with the versions of its
// weights that the schedule states (bitwise, gradients of the last update; fp64 has no optimizer, so no ratio).
// `device` is where the run was: "cpu", "cuda:0". `clock` is that of the progress.
[[nodiscard]] CheckResult check(const Plan& plan, const std::shared_ptr<const Corpus>& corpus,
                                const std::vector<double>& losses, const NamedGradients& gradients,
                                const std::string& device, const Progress::Clock& clock);

}  // namespace plumb::exec
