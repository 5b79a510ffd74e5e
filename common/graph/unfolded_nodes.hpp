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
  [[nodiscard]] NodeId next() const { return next_; }  // the id of what is emitted next

  // What these ranks, ascending, do together: of a group of their own, as `flow` has it.
  [[nodiscard]] NodeId emit_joined(Node node, const std::vector<int>& ranks, const Flow& flow);

  // Makes room for so many at once: without, what there is stands twice for a moment when it grows. Throws as `emit`.
  void reserve(std::int64_t nodes, std::int64_t edges);

  // From now on nodes and edges are counted, from zero, and not kept: for whom counts alone.
  void count_alone();
  [[nodiscard]] std::int64_t edges() const { return edge_count_; }

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
  NodeId next_ = 0;
  std::int64_t edge_count_ = 0;
  bool keeps_ = true;
  std::vector<std::pair<NodeId, NodeId>> edges_;
};

}  // namespace plumb
