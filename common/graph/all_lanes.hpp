// The graph of a run's ranks, as it is measured: of every lane what the pipeline's graph has.
#pragma once

#include "common/cost/costs.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// Every node of `folded` once for each lane, a reduction over data-parallel ranks once for each of their groups. What
// an action does inside is one node, as one event is measured of it; that is what `unfold` takes apart.
// Throws InputError where `folded` is not of this layout's pipeline.
[[nodiscard]] ScheduleGraph in_all_lanes(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout);

}  // namespace plumb
