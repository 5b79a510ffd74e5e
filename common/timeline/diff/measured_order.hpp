// The schedule as the ranks really went through it. Internal to the diff.
#pragma once

#include <string>
#include <vector>

#include "common/graph/schedule_graph.hpp"

namespace plumb {

struct ReorderedSchedule {
  Schedule schedule;               // lowered again
  std::vector<std::string> moved;  // per rank that left the planned order, where it did so first; empty if none did
};

// `starts` are measured, one per node of the graph of `lowered`. A schedule with evictions is taken as planned.
[[nodiscard]] ReorderedSchedule in_measured_order(const Schedule& lowered, const ScheduleGraph& graph,
                                                  const std::vector<Seconds>& starts);

// For each node of `graph` the same action's node in `other`, which holds the same actions in another order.
[[nodiscard]] std::vector<NodeId> same_nodes(const ScheduleGraph& graph, const ScheduleGraph& other);

}  // namespace plumb
