// Small schedule graphs written by hand, for tests that must not depend on how schedules become graphs.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "common/graph/schedule_graph.hpp"

namespace plumb::tests {

// Fills in edges, predecessor counts and topological order. Edges must go from lower to higher ids.
inline ScheduleGraph hand_made(std::vector<Node> nodes, std::vector<std::pair<NodeId, NodeId>> edges, int ranks) {
  ScheduleGraph graph;
  std::sort(edges.begin(), edges.end());
  graph.predecessor_count.assign(nodes.size(), 0);
  for (const auto& edge : edges) ++graph.predecessor_count[edge.second];
  graph.edges =
      ScheduleGraph::Edges(boost::edges_are_sorted, edges.begin(), edges.end(), static_cast<NodeId>(nodes.size()));
  graph.rank_order.resize(static_cast<std::size_t>(ranks));
  for (NodeId id = 0; id < nodes.size(); ++id) {
    graph.topological_order.push_back(id);
    if (nodes[id].kind != NodeKind::transfer) graph.rank_order[static_cast<std::size_t>(nodes[id].rank)].push_back(id);
  }
  graph.nodes = std::move(nodes);
  graph.ranks = ranks;
  return graph;
}

inline Node work(int rank, double seconds, int microbatch = 0) {
  return {.kind = NodeKind::compute,
          .action = {ActionKind::forward, rank, microbatch},
          .rank = rank,
          .peer = -1,
          .bytes = {},
          .duration = {seconds}};
}

inline Node message(int from, int to, std::int64_t bytes, const TransferCost& port, int microbatch = 0) {
  return {.kind = NodeKind::transfer,
          .action = {ActionKind::receive_forward, to, microbatch},
          .rank = to,
          .peer = from,
          .bytes = {bytes},
          .duration = port.latency + Bytes{bytes} / port.bandwidth};
}

}  // namespace plumb::tests
