// A stage that waits the predicted time instead of computing, and passes on as many bytes as the real one.
#pragma once

#include <memory>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/stage/stage.hpp"

namespace plumb::exec {

// The stages on a rank of the plan's layout, null elsewhere. They refuse what a real stage would: a backward without
// its forward, an input of the wrong size, work left over at the end of the step. While they wait they poll `run`, the
// rank's own transport, and throw what it throws: a run that is told to stop does not wait for them.
[[nodiscard]] std::vector<std::unique_ptr<Stage>> make_emulated_stages(const Plan& plan, int rank,
                                                                       Transport* run = nullptr);

}  // namespace plumb::exec
