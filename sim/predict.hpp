// The engines that predict a plan's step, by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/graph/disturbance.hpp"
#include "common/planner/planner.hpp"

namespace plumb::sim {

// "simgrid" (absent from a build without SimGrid) and "path"; the first is the default.
[[nodiscard]] std::vector<std::string> engine_names();

// "3.32", or "off" in a build without SimGrid.
[[nodiscard]] std::string simgrid_version();

// For readers: what this engine does, and where the build lacks the other.
[[nodiscard]] std::string engine_text(std::string_view name);

// Throws InputError with a did-you-mean, or with the reason why this build has no SimGrid.
[[nodiscard]] Evaluator find_engine(std::string_view name);

// The same engines for a graph alone. That by the longest path knows no disturbances: it throws InputError for them.
[[nodiscard]] StepEngine find_step_engine(std::string_view name);

// The plan's step with all ranks of its layout, each layer's collectives as flows, by this engine: without SimGrid
// nothing contends. Rank summaries and events are those of all ranks; the timeline's schedule and costs remain the
// pipeline's.
[[nodiscard]] Timeline predict_unfolded(const Plan& plan, std::string_view engine);

}  // namespace plumb::sim
