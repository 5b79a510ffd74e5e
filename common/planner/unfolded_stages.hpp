// All ranks of a plan whose stages have different data degrees.
#pragma once

#include <functional>
#include <string_view>

#include "common/graph/unfold_stages.hpp"
#include "common/planner/planner.hpp"

namespace plumb {

[[nodiscard]] UnfoldedStages unfolded_stages(const Plan& plan, const ScheduleGraph& folded);

// When the nodes of a graph of all ranks start and end.
using RunGraph = std::function<Evaluation(const ScheduleGraph&)>;

// Events and rank summaries of all ranks. A message counts once for each rank that receives it, from the first part of
// it that comes to the last. `engine` is its producer.
[[nodiscard]] Timeline unfolded_stages_timeline(const Plan& plan, std::string_view engine, const RunGraph& run);

// One rank for each stage, that which ends last, from all ranks: what messages of different stages take of each other
// counts.
[[nodiscard]] Timeline folded_back_timeline(const Plan& plan, std::string_view engine, const RunGraph& run);

}  // namespace plumb
