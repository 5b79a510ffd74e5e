#include "common/planner/unfolded_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/text.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {
namespace {

template <class Type>
constexpr auto size_in_bytes = static_cast<std::int64_t>(sizeof(Type));

// Of the graph: a node, its degree, its place in the order and its row of edges, and an edge's end in it.
std::int64_t graph_bytes(const UnfoldedSize& size) {
  return size.nodes * (size_in_bytes<Node> + 3 * size_in_bytes<NodeId>)+size.edges * size_in_bytes<NodeId> +
         size.copies * size_in_bytes<NodeCopy> + size.folded * size_in_bytes<std::vector<NodeCopy>>;
}

}  // namespace

Bytes unfolded_memory(const Plan& plan, const ScheduleGraph& folded, const UnfoldedSize& size) {
  std::int64_t events = 0;
  for (const Node& node : folded.nodes) events += stage_width(plan.layout, node.rank);
  const std::int64_t graph = graph_bytes(size);
  // Edges stand beside the graph as pairs until it has them.
  const std::int64_t making = graph + 2 * size.edges * size_in_bytes<NodeId>;
  // Of a node start and end, how many it waits for and of how many parts it is.
  const std::int64_t running = size.nodes * 2 * (size_in_bytes<Seconds> + size_in_bytes<NodeId>);
  // A stable sort has half of what it sorts once more; a rank's memory has two points an action.
  const std::int64_t telling = size.nodes * 2 * size_in_bytes<Seconds> +
                               events * (size_in_bytes<Event> * 3 / 2 + 2 * size_in_bytes<MemoryPoint>);
  return {std::max({making, graph + running, graph + telling})};
}

void require_room(const Plan& plan, const ScheduleGraph& folded, const UnfoldedSize& size, const UnfoldingRoom& room) {
  const Bytes needed = unfolded_memory(plan, folded, size);
  if (!room.there || needed <= *room.there) return;
  throw NoRoomHere(room.where,
                   "simulating all " + std::to_string(ranks(plan.layout)) + " ranks takes about " + to_text(needed) +
                       " of memory, and this host has " + to_text(*room.there) + " left",
                   room.hint);
}

}  // namespace plumb
