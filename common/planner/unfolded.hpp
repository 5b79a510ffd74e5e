// A plan's step with all ranks of its layout.
#pragma once

#include <functional>
#include <string_view>

#include "common/graph/unfold.hpp"
#include "common/planner/planner.hpp"

namespace plumb {

// What the actions of a plan's stages do in detail, from the kernels of their blocks; what the plan's costs have more
// than these (launches, tables' gradients, what attention redoes) is shared out over the computing parts.
[[nodiscard]] UnfoldingDetails unfolding_details(const Plan& plan);

// The plan's graph with all ranks.
[[nodiscard]] UnfoldedGraph unfolded_graph(const Plan& plan, const ScheduleGraph& folded);

// Events and rank summaries of all ranks (with data degrees by stage those of unfolded_stages.hpp; of the graph that is
// run only `graph` counts then); schedule and costs are those of the pipeline. `engine` is its producer.
[[nodiscard]] Timeline unfolded_timeline(const Plan& plan, std::string_view engine,
                                         const std::function<Evaluation(const UnfoldedGraph&)>& run);

}  // namespace plumb
