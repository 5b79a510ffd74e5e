#include "common/planner/own_cores.hpp"

#include <algorithm>
#include <vector>

#include "common/layout/shared_ports.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/traffic.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

double slowdown_of(const Plan& plan, int stage) {
  const int rank = plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)];
  return core_slowdown(as_all(plan.layout, rank), plan.cluster.machine);
}

// `kept` of it is as long on any number of cores.
Seconds faster(Seconds time, Seconds kept, double factor) {
  return std::min(kept, time) + std::max(time - kept, Seconds{}) / factor;
}

ActionTimes faster(const ActionTimes& times, const StageMoves& moves, const DataWaits& waits, double factor) {
  const auto moved = [&](ActionKind kind) {
    const auto found = moves.find(kind);
    return found == moves.end() ? Seconds{} : exposed(found->second.time);
  };
  const Seconds in_forward = moved(ActionKind::forward) + waits.forward;
  const Seconds in_input = moved(ActionKind::input_gradient) + waits.input_gradient;
  const Seconds in_weight = moved(ActionKind::weight_gradient) + waits.weight_gradient;
  return {.forward = faster(times.forward, in_forward, factor),
          .input_gradient = faster(times.input_gradient, in_input, factor),
          .weight_gradient = faster(times.weight_gradient, in_weight, factor),
          .hidden_in_backward = times.hidden_in_backward};
}

// `by_slice`: moves of all stages.
ComputeCost faster(const Plan& own, const std::vector<std::vector<StageMoves>>& by_slice, ComputeCost cost, int stage,
                   double factor) {
  const auto at = static_cast<std::size_t>(stage);
  const StageMoves& moves = by_slice.front()[at];
  const ActionTimes mean{cost.forward, cost.input_gradient, cost.weight_gradient, cost.hidden_in_backward};
  const DataWaits& waits = cost.data_moves.waits;
  const ActionTimes times = faster(mean, moves, waits, factor);
  cost.forward = times.forward;
  cost.input_gradient = times.input_gradient;
  cost.weight_gradient = times.weight_gradient;
  for (std::size_t slice = 0; slice < cost.slices.size(); ++slice) {
    cost.slices[slice] = faster(cost.slices[slice], by_slice[slice][at], waits, factor);
  }
  const auto once = moves.find(ActionKind::optimizer_step);
  const int rank = rank_in_replica(own.schedule, 0, stage);
  const Seconds kept = own.software.step_overhead / static_cast<double>(stages_of_rank(own.schedule, rank).size());
  cost.optimizer =
      faster(cost.optimizer, kept + (once == moves.end() ? Seconds{} : exposed(once->second.time)), factor);
  return cost;
}

}  // namespace

Plan on_own_cores(const Plan& plan) {
  bool slowed = false;
  for (int stage = 0; stage < all_stages(plan.schedule); ++stage) slowed = slowed || slowdown_of(plan, stage) > 1;
  if (!slowed) return plan;
  Plan own = plan;
  own.cluster.machine.cores = 0;
  if (!has_measured_costs(plan) && plan.costs == predicted_costs(plan)) {
    own.costs = predicted_costs(own);
    return own;
  }
  std::vector<std::vector<StageMoves>> by_slice;
  for (const Slice& slice : slices_of(own)) by_slice.push_back(tensor_moves(own, slice));
  for (int stage = 0; stage < all_stages(plan.schedule); ++stage) {
    ComputeCost& cost = own.costs.stages[static_cast<std::size_t>(stage)];
    cost = faster(own, by_slice, std::move(cost), stage, slowdown_of(plan, stage));
  }
  return own;
}

}  // namespace plumb
