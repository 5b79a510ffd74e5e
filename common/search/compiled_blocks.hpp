// The nodes of a schedule's graph in an order in which its steady state stands as equal blocks, one behind the other.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/graph/schedule_graph.hpp"

namespace plumb {

struct NodeBlocks {
  std::vector<NodeId> order;  // topological
  // By run of blocks: the first node of each, in `order`; at the end where the nodes behind the run begin.
  std::vector<std::vector<std::size_t>> first;
};

// Blocks of `period` microbatches: on each rank the run of its actions that repeats, shifted by so many microbatches;
// the ranks' runs aligned so that no block waits for a later one. Each block has the same actions, in the same order.
// Where all F come before all else (gpipe) there are two runs, of the F and of what follows. nullopt: there are none.
[[nodiscard]] std::optional<NodeBlocks> node_blocks(const Schedule& lowered, const ScheduleGraph& graph, int period);

}  // namespace plumb
