// Nodes of an unfolded graph in topological order, its edges, and the phases of collectives.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/graph/schedule_graph.hpp"

namespace plumb {

class UnfoldedNodes {
 public:
  // `graph`: into which they go; its groups are the caller's.
  explicit UnfoldedNodes(ScheduleGraph& graph) : graph_(graph) {}

  // Throws InputError where the ids do not suffice.
  [[nodiscard]] NodeId emit(const Node& node);

  // Nothing where there is no node to start after.
  void edge(NodeId from, NodeId to);

  // The phases after one another, each `factor` times as long; `before` are what the first one waits for. Returns the
  // last.
  [[nodiscard]] NodeId add_collective(const Node& folded, std::int32_t group, const CollectivePlan& plan, double factor,
                                      const std::vector<NodeId>& before = {});

  // All of them after one another.
  [[nodiscard]] NodeId add_collectives(const Node& folded, std::int32_t group, std::span<const CollectivePlan> plans,
                                       double factor);

  // When all nodes and edges are there.
  void finish();

 private:
  ScheduleGraph& graph_;
  std::vector<std::pair<NodeId, NodeId>> edges_;
};

}  // namespace plumb
