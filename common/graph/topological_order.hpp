// The order in which a graph's nodes may run, and who waits for whom where there is none.
#pragma once

#include <string>

#include "common/graph/schedule_graph.hpp"

namespace plumb {

// Fills `predecessor_count` and `topological_order` from the edges: Kahn's algorithm, the smallest ready id first.
// False if some nodes wait for each other: then the order ends before them.
[[nodiscard]] bool sort_topologically(ScheduleGraph& graph);

// "deadlock: rank 0 waits at 0F7 for rank 1's …, which waits for …": a circle of a graph that is not sorted to its end.
[[nodiscard]] std::string describe_cycle(const ScheduleGraph& graph);

}  // namespace plumb
