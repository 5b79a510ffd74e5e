#include "common/plan/data_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/block_cost/offloaded.hpp"
#include "common/cost/block_quantisation.hpp"
#include "common/cost/moves_in_sequence.hpp"
#include "common/layout/sharding.hpp"
#include "common/placement/weight_rule.hpp"
#include "common/schedule/schedule.hpp"
#include "common/split/gathered_units.hpp"

namespace plumb {
namespace {

// The same ranks with the data axis as two: of HSDP the copies on the data axis, and directly inside of it the ranks of
// a copy, or any neighbours, on the expert axis, over which sequences are divided as well and which has one rank in all
// layouts that are planned.
Layout with_two_data_axes(Layout layout, int inside) {
  std::vector<MeshAxis> order(layout.order.begin(), layout.order.end());
  std::erase(order, MeshAxis::expert);
  order.insert(std::ranges::find(order, MeshAxis::data), MeshAxis::expert);
  std::ranges::copy(order, layout.order.begin());
  layout.expert = inside;
  layout.data = {.degree = layout.data.degree / inside};
  return layout;
}

template <class Times>
void add_copying(Times& times, Seconds copying) {
  times.forward += copying;
  times.input_gradient += copying;
}

bool has_copies(const Layout& layout) { return layout.data.sharding == Sharding::hsdp && state_shards(layout) > 1; }

template <class Times>
void add_exposed(Times& times, const DataMoves& moves) {
  times.forward += moves.gathering;
  times.input_gradient += gathering_again(moves);
  times.weight_gradient += moves.reducing;
}

// In its own times: moves of which nothing goes beside computing.
void expose(ComputeCost& block) {
  DataMoves& moves = block.data_moves;
  add_exposed(block, moves);
  for (ActionTimes& slice : block.slices) add_exposed(slice, moves);
  const Seconds again = gathering_again(moves);
  moves.waits = {.forward = moves.gathering,
                 .recompute = again,
                 .input_gradient = again,
                 .weight_gradient = moves.reducing,
                 .backward = again + moves.reducing};
}

}  // namespace

GroupPlacement shard_placement(const Layout& layout, const Cluster& cluster, int stage) {
  if (!has_copies(layout)) return placement(layout, MeshAxis::data, cluster, Together::all_stages, stage);
  return placement(with_two_data_axes(layout, layout.data.shard), MeshAxis::expert, cluster, Together::all_stages);
}

ShardGroups shard_groups(const Layout& layout, const Cluster& cluster, int stage) {
  ShardGroups groups{.all = shard_placement(layout, cluster, stage)};
  const int inside = inside_shards(layout.data);
  if (inside == 1 || inside == layout.data.degree) return groups;
  const Layout both = with_two_data_axes(layout, inside);
  groups.inside = placement(both, MeshAxis::expert, cluster, Together::all_stages);
  groups.across = placement(both, MeshAxis::data, cluster, Together::all_stages);
  return groups;
}

GroupPlacement copies_placement(const Layout& layout, const Cluster& cluster) {
  if (!has_copies(layout)) return {};
  return placement(with_two_data_axes(layout, layout.data.shard), MeshAxis::data, cluster, Together::all_stages);
}

Collective reduction_kind(const Layout& layout) {
  const Mesh mesh = mesh_of(layout);
  const std::vector<Move> moves = weight_moves(mesh, weight_rule(mesh, layout.data), layout.data.degree).reduce;
  return moves.empty() ? Collective::all_reduce : moves.front().collective.value();
}

ShardMoves shard_moves(const Scenario& scenario, const ShardGroups& groups) {
  const MovedTypes types{scenario.training.precision, scenario.software.gradients, reduction_kind(scenario.layout)};
  return {scenario.cluster.machine, scenario.layout.data, types, groups};
}

ShardMoves shard_moves(const Plan& plan, const ShardGroups& groups) {
  const MovedTypes types{plan.training.precision, plan.software.gradients, reduction_kind(plan.layout)};
  return {plan.cluster.machine, plan.layout.data, types, groups};
}

QuantisedMoves quantised_moves(const DataLayout& data, ElementType weights, ElementType gradients, Bytes gathered,
                               Bytes reduced) {
  const auto blocks = [](Bytes whole, ElementType type, int bits) {
    return Bytes{std::llround(quantised(static_cast<double>(whole.value), type, bits))};
  };
  QuantisedMoves all;
  if (data.quantized_weights) {
    all.forward = blocks(gathered, weights, quantised_weight_bits);
    if (data.secondary_shard == 0) all.input_gradient = all.forward;
  }
  if (data.quantized_gradients > 0) {
    const std::int64_t sums = reduced.value / element_bytes(gradients) / data.quantized_gradients;
    all.weight_gradient = std::int64_t{2} * blocks(reduced, gradients, quantised_gradient_bits) +
                          Bytes{sums * element_bytes(ElementType::fp32)};
  }
  return all;
}

QuantisedMoves quantised_once(const Plan& plan, const ComputeCost& stage) {
  QuantisedMoves once =
      quantised_moves(plan.layout.data, plan.training.precision, plan.software.gradients, stage.data_moves.unsharded,
                      shards_weights(plan.layout) ? reduced_bytes(stage) : Bytes{});
  once.input_gradient = {};
  return once;
}

ComputeCost with_data_moves(ComputeCost block, const Scenario& scenario, const ShardMoves& collectives) {
  DataMoves& moves = block.data_moves;
  const int ahead = blocks_ahead(scenario.layout, scenario.software);
  moves.prefetch = std::max(ahead, 1);
  if (moves.gathered == Bytes{} && moves.reduced == Bytes{}) return block;
  if (moves.gathered > Bytes{}) {
    moves.gathering = time_of(collectives.gathering(moves.gathered));
    if (scenario.layout.data.secondary_shard > 0) {
      moves.gathering_again = time_of(collectives.gathering_again(moves.gathered));
    }
  }
  block.parameter_moves = weights_coming_up(block, scenario);
  const Seconds copying = block.parameter_moves.copying;
  if (block.parameter_moves.beside) {
    moves.gathering += copying;
  } else if (copying > Seconds{}) {
    add_copying(block, copying);
    for (ActionTimes& slice : block.slices) add_copying(slice, copying);
  }
  if (moves.reduced > Bytes{}) moves.reducing = time_of(collectives.reduction(moves.reduced));
  moves.quantised = quantised_moves(scenario.layout.data, scenario.training.precision, scenario.software.gradients,
                                    moves.gathered, moves.reduced);
  moves.beside = ahead > 0;
  if (!moves.beside) expose(block);
  for (SliceBytes& slice : block.slice_bytes) add_own_moves(slice, moves);
  SliceBytes bytes = bytes_of(block, no_microbatch);
  add_own_moves(bytes, moves);
  set_bytes(block, bytes);
  return block;
}

bool gathers_in_units(const Layout& layout) { return layout.data.layers_per_unit > 1; }

namespace {

void move_as_one(std::span<ComputeCost> unit, int ahead, const ShardMoves& collectives) {
  Bytes gathered;
  Bytes reduced;
  for (ComputeCost& block : unit) {
    block.data_moves.prefetch = std::max(ahead, 1);
    block.data_moves.beside = ahead > 0;
    block.data_moves.joined = &block != unit.data();
    gathered += block.data_moves.gathered;
    reduced += block.data_moves.reduced;
  }
  DataMoves& moves = unit.front().data_moves;
  if (gathered > Bytes{}) moves.gathering = time_of(collectives.gathering(gathered));
  if (reduced > Bytes{}) moves.reducing = time_of(collectives.reduction(reduced));
  if (!moves.beside) expose(unit.front());
  add_own_moves_as_one(unit);
}

}  // namespace

std::vector<ComputeCost> with_units_of_layers(const Plan& plan, std::vector<ComputeCost> blocks) {
  if (!gathers_in_units(plan.layout)) return blocks;
  const ShardMoves collectives = shard_moves(plan, shard_groups(plan.layout, plan.cluster));
  const int ahead = blocks_ahead(plan.layout, plan.software);
  const int head = static_cast<int>(blocks.size()) - 1;
  auto first = blocks.begin();
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    const BlockRange range = blocks_of_stage(plan.split, stage);
    for (const int size : unit_sizes(range, head, plan.layout.data.layers_per_unit)) {
      move_as_one({first, first + size}, ahead, collectives);
      first += size;
    }
  }
  return blocks;
}

Seconds last_backward_time(const ComputeCost& cost, bool weight_gradient_last) {
  const ActionTimes times = times_of(cost, 0);
  return weight_gradient_last ? times.weight_gradient : backward_time(times);
}

std::vector<BlockGradients> gradients_of(std::span<const ComputeCost> blocks, bool weight_gradient_last) {
  std::vector<BlockGradients> made;
  std::vector<Seconds> reduced;  // of blocks whose copies add up what they reduce beside the next one's computing
  const auto sums_copies = [](const ComputeCost& block) {
    const DataMoves& moves = block.data_moves;
    return moves.beside && moves.reduced > Bytes{} && moves.replicated > Bytes{};
  };
  if (std::ranges::any_of(blocks, sums_copies)) reduced = reduced_at(blocks, weight_gradient_last);
  std::size_t unit = 0;
  Bytes of_unit;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    BlockGradients& gradients =
        made.emplace_back(BlockGradients{last_backward_time(*block, weight_gradient_last), reduced_bytes(*block)});
    of_unit += block->data_moves.accumulated;
    if (block->data_moves.joined) continue;  // its unit's first block has all of it
    if (!reduced.empty() && of_unit > Bytes{}) {
      gradients.own = of_unit;
      gradients.reduced = reduced[unit];
    }
    ++unit;
    of_unit = {};
  }
  return made;
}

namespace {

// Over HSDP's copies: of each block that reduces its gradients itself, and of each of what is reduced once a step in
// `bucket` bytes.
void sum_copies_in_turn(StageReduction& reduction, std::span<const BlockGradients> made, Bytes replicated, Bytes bucket,
                        const std::function<CollectivePlan(double)>& sum_of) {
  Bytes once = replicated;
  Bytes all;
  for (const BlockGradients& block : made) {
    all += block.bytes;
    if (block.own == Bytes{}) continue;
    reduction.reduced.push_back(block.reduced);
    reduction.copies.push_back(sum_of(static_cast<double>(block.own.value)));
    once -= block.own;
  }
  if (all == Bytes{}) return;
  const double part = static_cast<double>(once.value) / static_cast<double>(all.value);
  for (const FullBuckets& of_block : full_buckets(made, bucket)) {
    reduction.copies.push_back(repeated(sum_of(static_cast<double>(of_block.bytes.value) * part), of_block.count));
  }
}

}  // namespace

GradientCollectives::GradientCollectives(const Plan& plan, const StageGroups& groups)
    : machine_(plan.cluster.machine),
      shards_(machine_, plan.layout.data, {plan.training.precision, plan.software.gradients, groups.reduction},
              groups.data),
      copies_(groups.copies) {}

CollectivePlan GradientCollectives::sum_over_copies(double own) const {
  return fastest_collective(machine_, Collective::all_reduce, own, copies_);
}

StageReduction reduction_of(const Plan& plan, std::span<const BlockGradients> made, Bytes replicated, int stage,
                            const StageGroups& groups) {
  StageReduction reduction;
  const GroupPlacement& group = groups.data.all;
  if (group.ranks <= 1) return reduction;
  const GradientCollectives collectives(plan, groups);
  Bytes all;
  for (const BlockGradients& block : made) all += block.bytes;
  const bool beside = reduces_beside_backward(plan, stage);
  const Bytes bucket = bucket_bytes(plan.software, group.ranks);
  if (beside) {
    reduction.shards = bucketed_reduction([&](Bytes bytes) { return collectives.reduction(bytes); }, made, bucket);
  } else if (all > Bytes{} || !reduces_in_actions(plan.layout)) {
    reduction.shards = {collectives.reduction(all)};
  }
  if (replicated == Bytes{}) return reduction;
  const auto sum_of = [&](double own) { return collectives.sum_over_copies(own); };
  if (sums_copies_beside_backward(plan, stage)) {
    sum_copies_in_turn(reduction, made, replicated, beside ? bucket : all, sum_of);
  } else {
    reduction.copies = {sum_of(static_cast<double>(replicated.value))};
  }
  return reduction;
}

CollectivePlan gathering_of(const Plan& plan, Bytes gathered, const GroupPlacement& group) {
  return shard_moves(plan, {.all = group}).gathering(gathered);
}

GroupPlacement reduction_placement(const Plan& plan, int stage) {
  const int rank = has_stage_data(plan.layout) ? plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)] : 0;
  return shard_placement(plan.layout, plan.cluster, rank);
}

int blocks_ahead(const Layout& layout, const Software& software) {
  return software.data_overlap ? layout.data.prefetch : 0;
}

bool reduces_beside_backward(const Plan& plan, int stage) {
  if (reduces_in_actions(plan.layout)) return false;  // what is left is complete at the step's end
  return plan.software.data_overlap && (stage == 0 || !plan.software.data_bucket.first_stage_only);
}

bool sums_copies_beside_backward(const Plan& plan, int stage) {
  if (!overlaps_copies(plan.software, plan.layout)) return false;
  return reduces_in_actions(plan.layout) || reduces_beside_backward(plan, stage);
}

}  // namespace plumb
