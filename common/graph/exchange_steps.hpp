// Which actions of a rank run as one step: between two steps it exchanges messages with its neighbours.
#pragma once

#include <vector>

#include "common/graph/schedule_graph.hpp"

namespace plumb {

inline constexpr NodeId no_node = static_cast<NodeId>(-1);

// By node, of those that occupy a rank; `no_node` elsewhere and where there is none.
struct ExchangeSteps {
  std::vector<NodeId> first;   // of the node's step
  std::vector<NodeId> last;    // of the node's step
  std::vector<NodeId> before;  // that occupies the rank just before the step
  std::vector<NodeId> after;
};

// A step is one action, an overlapped pair (`joins_next` of its first node), or, with synchronous exchanges and several
// stages on a rank, a forward and the backward right behind it: Megatron-LM's interleaved schedule sends what both made
// after the backward, in one batch.
[[nodiscard]] ExchangeSteps exchange_steps(const ScheduleGraph& graph, std::vector<bool> joins_next,
                                           bool joins_forward_and_backward);

}  // namespace plumb
