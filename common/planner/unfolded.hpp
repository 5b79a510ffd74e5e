// A plan's step with all ranks of its layout.
#pragma once

#include <functional>
#include <string_view>

#include "common/graph/unfold.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded_memory.hpp"

namespace plumb {

// What the actions of a plan's stages do in detail, from the programs of their blocks; what the plan's costs have more
// than these (launches, tables' gradients, what attention redoes) is shared out over the computing parts. With data
// degrees by stage collectives of tensor groups stay inside the time of their actions.
[[nodiscard]] UnfoldingDetails unfolding_details(const Plan& plan);

// The plan's graph with all ranks. Throws InputError where there is too little room for what is done with it.
[[nodiscard]] UnfoldedGraph unfolded_graph(const Plan& plan, const ScheduleGraph& folded,
                                           const UnfoldingRoom& room = {});

// When the nodes of a graph of all ranks start and end.
using RunGraph = std::function<Evaluation(const ScheduleGraph&)>;

// Events and rank summaries of all ranks; schedule and costs are those of the pipeline. A message counts once for each
// rank that receives it, from the first part of it that comes to the last. `engine` is its producer.
[[nodiscard]] Timeline unfolded_timeline(const Plan& plan, std::string_view engine, const RunGraph& run,
                                         const UnfoldingRoom& room = {});

// One rank for each stage, that which ends last, from all ranks: what messages of different stages take of each other
// counts. Of data degrees by stage.
[[nodiscard]] Timeline folded_back_timeline(const Plan& plan, std::string_view engine, const RunGraph& run,
                                            const UnfoldingRoom& room = {});

}  // namespace plumb
