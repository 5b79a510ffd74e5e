// The nodes of a schedule's graph in an order in which its steady state stands as equal blocks, one behind the other.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/graph/schedule_graph.hpp"

namespace plumb {

struct NodeBlocks {
  std::vector<NodeId> order;       // topological
  std::vector<std::size_t> first;  // of each block, in `order`; at the end where the nodes behind the blocks begin
};

// Blocks of `period` microbatches: on each rank the run of its actions that repeats, shifted by so many microbatches;
// the ranks' runs aligned so that no block waits for a later one. Each block has the same actions, in the same order.
// nullopt: there are none.
[[nodiscard]] std::optional<NodeBlocks> node_blocks(const Schedule& lowered, const ScheduleGraph& graph, int period);

}  // namespace plumb
