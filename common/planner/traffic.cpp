#include "common/planner/traffic.hpp"

#include <algorithm>
#include <cmath>

#include "common/model/first_equal.hpp"
#include "common/placement/placed_block.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/action.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {
namespace {

// Of one block.
StageTraffic traffic_of(const PlacedBlock& placed, const Plan& plan) {
  StageTraffic traffic;
  for (const PlacedMove& each : placed.moves) {
    const double bytes = received_bytes(placed, each, plan.training.precision);
    (each.phase == Phase::forward          ? traffic.forward
     : each.phase == Phase::input_gradient ? traffic.input_gradient
                                           : traffic.weight_gradient) += bytes;
  }
  if (plan.training.lora) return traffic;  // what is trained of it, adapters, has no norms
  for (const PlacedWeight& weight : placed.weights) {
    const PlacedTensor& stored = weight.stored;
    const std::vector<Move> sums =
        moves(placed.mesh, stored.whole, with_partial(stored.placement, weight.gradient_partial), stored.placement);
    traffic.step += received_elements(placed.mesh, sums) * static_cast<double>(element_bytes(plan.software.gradients));
  }
  return traffic;
}

double of_action(const StageTraffic& traffic, ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::recompute:
      return traffic.forward;
    case ActionKind::input_gradient:
      return traffic.input_gradient;
    case ActionKind::weight_gradient:
      return traffic.weight_gradient;
    case ActionKind::backward:
      return traffic.input_gradient + traffic.weight_gradient;
    case ActionKind::optimizer_step:
      return traffic.step;
    default:
      return 0;
  }
}

double of_message(const Event& event, const Plan& plan) {
  const auto bytes = static_cast<double>(event.bytes.value);
  const TensorLayout& tensor = plan.layout.tensor;
  if (is_receive(event.action.kind)) {
    const bool scattered = plan.software.scattered_messages && !divides_tokens(tensor);
    return scattered ? tensor.degree * bytes : bytes;  // its own part, and those of the others of its tensor group
  }
  if (event.action.kind != ActionKind::reduce_gradient) return bytes;
  const auto stage = static_cast<std::size_t>(event.action.stage);
  const int ranks = data_degree(plan.layout, plan.schedule.rank_of_stage[stage]) * replicas(plan.schedule);
  return 2.0 * (ranks - 1) / ranks * bytes;
}

}  // namespace

std::vector<StageTraffic> tensor_traffic(const Plan& plan) { return tensor_traffic(plan, longest(slices_of(plan))); }

std::vector<StageTraffic> tensor_traffic(const Plan& plan, std::int64_t sequence) {
  std::vector<StageTraffic> all(static_cast<std::size_t>(stages(plan.schedule)));
  if (plan.layout.tensor.degree == 1) return all;
  const Tokens tokens{.sequences = plan.training.microbatch, .sequence = sequence};
  std::vector<StageTraffic> blocks;
  const std::vector<std::size_t> first = first_equal(plan.model.layers, [](std::size_t, std::size_t) { return true; });
  for (std::size_t block = 0; block < first.size(); ++block) {
    blocks.push_back(first[block] < block
                         ? blocks[first[block]]
                         : traffic_of(place_block(plan.model, block, plan.layout.tensor, tokens), plan));
  }
  const std::vector<bool> redone = layers_redone_inside(plan);
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    const BlockRange range = blocks_of_stage(plan.split, stage);
    StageTraffic& sum = all[static_cast<std::size_t>(stage)];
    for (int block = range.first; block < range.last; ++block) {
      const auto number = static_cast<std::size_t>(block);
      const StageTraffic& of_block = blocks[number];
      const bool again = number > 0 && number <= redone.size() && redone[number - 1];
      sum.forward += of_block.forward;
      sum.input_gradient += of_block.input_gradient + (again ? of_block.forward : 0);
      sum.weight_gradient += of_block.weight_gradient;
      sum.step += of_block.step;
    }
  }
  return all;
}

void count_received(Timeline& timeline, const Plan& plan) {
  std::vector<std::vector<StageTraffic>> by_slice;
  for (const std::int64_t tokens : plan.schedule.slice_tokens) by_slice.push_back(tensor_traffic(plan, tokens));
  if (by_slice.empty()) by_slice.push_back(tensor_traffic(plan));
  std::vector<double> received(timeline.ranks.size());
  for (const Event& event : timeline.steps.front().events) {
    const auto slice = static_cast<std::size_t>(std::max(0, event.action.microbatch)) % by_slice.size();
    const StageTraffic& of_stage = by_slice[slice][static_cast<std::size_t>(event.action.stage)];
    received[static_cast<std::size_t>(event.rank)] += of_message(event, plan) + of_action(of_stage, event.action.kind);
  }
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    timeline.ranks[rank].received_bytes = {std::llround(received[rank])};
  }
}

}  // namespace plumb
