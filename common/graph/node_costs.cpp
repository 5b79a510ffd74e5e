// What the nodes of a graph take and carry, by kind.
#include <algorithm>

#include "common/graph/joined_parts.hpp"
#include "common/graph/schedule_graph.hpp"

namespace plumb {

Seconds compute_time(const ComputeCost& cost, const Action& action) {
  const ActionTimes times = times_of(cost, action.microbatch);
  switch (action.kind) {
    case ActionKind::backward:
      return backward_time(times);
    case ActionKind::input_gradient:
      return times.input_gradient;
    case ActionKind::weight_gradient:
      return times.weight_gradient;
    case ActionKind::recompute:
      return recompute_time(times.forward, cost.data_moves);
    default:
      return times.forward;
  }
}

Bytes payload(const Node& node, const PipelineCosts& costs) {
  const ComputeCost& cost = costs.stages[static_cast<std::size_t>(node.action.stage)];
  switch (node.kind) {
    case NodeKind::transfer:
      return boundary_of_stage(costs, node.action.stage, node.action.microbatch);
    case NodeKind::host_copy:
      return bytes_of(cost, node.action.microbatch).kept;
    case NodeKind::collective:
      if (node.action.kind == ActionKind::clip_gradients) return {};
      if (joins_parts(node.action.kind)) return join_cost(costs, node.action).bytes;
      if (node.action.kind == ActionKind::unshard) return cost.gathered_bytes;
      return node.action.kind == ActionKind::reduce_tied ? costs.tied_bytes : reduced_bytes(cost);
    default:
      return {};
  }
}

Seconds time_alone(const Node& node, const PipelineCosts& costs) {
  const ComputeCost& cost = costs.stages[static_cast<std::size_t>(node.action.stage)];
  if (node.kind == NodeKind::compute) return compute_time(cost, node.action);
  if (node.kind == NodeKind::optimizer) return cost.optimizer;
  if (node.action.kind == ActionKind::clip_gradients) return costs.gradient_clipping;
  if (joins_parts(node.action.kind)) return join_cost(costs, node.action).alone;
  if (is_folded(node)) {
    return node.action.kind == ActionKind::unshard ? cost.weight_gathering : cost.gradient_reduction;
  }
  if (node.kind == NodeKind::transfer && !costs.boundaries.empty()) {
    return boundary_time(
        costs.boundaries[static_cast<std::size_t>(std::min(node.action.stage, producer_stage(node.action)))]);
  }
  const Seconds alone = transfer_time(transfer_between(costs, node.peer, node.rank), payload(node, costs));
  return node.kind == NodeKind::transfer ? alone + gathering_time(costs, node.action.microbatch) : alone;
}

}  // namespace plumb
