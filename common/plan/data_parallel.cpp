#include "common/plan/data_parallel.hpp"

#include <algorithm>

#include "common/block_cost/block_costs.hpp"
#include "common/cost/moves_in_sequence.hpp"
#include "common/layout/sharding.hpp"
#include "common/placement/weight_rule.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {
namespace {

// The same ranks with HSDP's data axis as two: copies on the data axis, and directly inside of it the ranks of a copy
// on the expert axis, over which sequences are divided as well and which has one rank in all layouts that are planned.
Layout with_two_data_axes(Layout layout) {
  std::vector<MeshAxis> order(layout.order.begin(), layout.order.end());
  std::erase(order, MeshAxis::expert);
  order.insert(std::ranges::find(order, MeshAxis::data), MeshAxis::expert);
  std::ranges::copy(order, layout.order.begin());
  layout.expert = layout.data.shard;
  layout.data = {.degree = layout.data.replicate};
  return layout;
}

bool has_copies(const Layout& layout) { return layout.data.sharding == Sharding::hsdp && state_shards(layout) > 1; }

template <class Times>
void add_exposed(Times& times, const DataMoves& moves) {
  times.forward += moves.gathering;
  times.input_gradient += moves.gathering;
  times.weight_gradient += moves.reducing;
}

}  // namespace

GroupPlacement shard_placement(const Layout& layout, const Cluster& cluster, int stage) {
  if (!has_copies(layout)) return placement(layout, MeshAxis::data, cluster, Together::all_stages, stage);
  return placement(with_two_data_axes(layout), MeshAxis::expert, cluster, Together::all_stages);
}

GroupPlacement copies_placement(const Layout& layout, const Cluster& cluster) {
  if (!has_copies(layout)) return {};
  return placement(with_two_data_axes(layout), MeshAxis::data, cluster, Together::all_stages);
}

Collective reduction_kind(const Layout& layout) {
  const Mesh mesh = mesh_of(layout);
  const std::vector<Move> moves =
      weight_moves(mesh, weight_rule(mesh, layout.data.sharding), layout.data.degree).reduce;
  return moves.empty() ? Collective::all_reduce : moves.front().collective.value();
}

ComputeCost with_data_moves(ComputeCost block, const Scenario& scenario, const GroupPlacement& shards) {
  DataMoves& moves = block.data_moves;
  if (moves.gathered == Bytes{} && moves.reduced == Bytes{}) return block;
  const auto time = [&](Collective kind, Bytes bytes) {
    if (bytes == Bytes{}) return Seconds{};
    return collective_time(scenario.cluster.machine, kind, static_cast<double>(bytes.value), shards);
  };
  moves.gathering = time(Collective::all_gather, moves.gathered);
  moves.reducing = time(Collective::reduce_scatter, moves.reduced);
  moves.beside = scenario.software.data_overlap;
  if (!moves.beside) {
    add_exposed(block, moves);
    for (ActionTimes& slice : block.slices) add_exposed(slice, moves);
    moves.waits = {moves.gathering, moves.gathering, moves.reducing, moves.gathering + moves.reducing};
  }
  const MovedBytes own{.forward = moves.gathered, .input_gradient = moves.gathered, .weight_gradient = moves.reduced};
  for (SliceBytes& slice : block.slice_bytes) add_moved(slice, own);
  SliceBytes bytes = bytes_of(block, no_microbatch);
  add_moved(bytes, own);
  set_bytes(block, bytes);
  return block;
}

Seconds last_backward_time(const ComputeCost& cost, bool weight_gradient_last) {
  const ActionTimes times = times_of(cost, 0);
  return weight_gradient_last ? times.weight_gradient : backward_time(times);
}

std::vector<BlockGradients> gradients_of(std::span<const ComputeCost> blocks, bool weight_gradient_last) {
  std::vector<BlockGradients> made;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    made.push_back({last_backward_time(*block, weight_gradient_last), reduced_bytes(*block)});
  }
  return made;
}

StageReduction reduction_of(const Plan& plan, std::span<const BlockGradients> made, Bytes replicated, int stage,
                            const StageGroups& groups) {
  StageReduction reduction;
  const GroupPlacement& group = groups.data;
  const Machine& machine = plan.cluster.machine;
  if (group.ranks <= 1) return reduction;
  Bytes all;
  for (const BlockGradients& block : made) all += block.bytes;
  if (reduces_beside_backward(plan, stage)) {
    reduction.shards =
        bucketed_reduction(machine, groups.reduction, group, made, bucket_bytes(plan.software, group.ranks));
  } else if (all > Bytes{} || !reduces_in_actions(plan.layout)) {
    reduction.shards = {fastest_collective(machine, groups.reduction, static_cast<double>(all.value), group)};
  }
  if (replicated > Bytes{}) {
    reduction.copies = {
        fastest_collective(machine, Collective::all_reduce, static_cast<double>(replicated.value), groups.copies)};
  }
  return reduction;
}

CollectivePlan gathering_of(const Plan& plan, Bytes gathered, const GroupPlacement& group) {
  return fastest_collective(plan.cluster.machine, Collective::all_gather, static_cast<double>(gathered.value), group);
}

GroupPlacement reduction_placement(const Plan& plan, int rank) {
  return shard_placement(plan.layout, plan.cluster, rank);
}

bool reduces_beside_backward(const Plan& plan, int stage) {
  if (reduces_in_actions(plan.layout)) return false;  // what is left is complete at the step's end
  return plan.software.data_overlap && (stage == 0 || !plan.software.data_bucket.first_stage_only);
}

void require_sharding_possible(const Plan& plan) {
  if (state_shards(plan.layout) == 1) return;
  const Sharding sharding = plan.layout.data.sharding;
  if (has_stage_data(plan.layout)) throw cannot_be_planned_by_stage(sharding);
  if (replicas(plan.schedule) > 1) {
    throw cannot_be_planned(sharding, "a schedule that trains two replicas: " + plan.schedule.name,
                            "schedule: zb-h1, or sharding: none");
  }
  if (plan.schedule.update_every > 0) {
    throw cannot_be_planned(sharding, "a schedule that updates weights within a step: " + plan.schedule.name,
                            "schedule: 1f1b, or sharding: none");
  }
}

}  // namespace plumb
