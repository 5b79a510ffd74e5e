// What a stage's data-parallel ranks gather and reduce: how long it takes, and where the groups stand that do it.
#pragma once

#include <span>
#include <vector>

#include "common/cost/shard_moves.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {

// How many units ahead of the one at work actions gather weights beside computing, and reduce gradients as MoveOrder
// says: 0 where the software does not overlap (`data_overlap`), or the layout gathers nothing ahead.
[[nodiscard]] int blocks_ahead(const Layout& layout, const Software& software);

// Whether the software reduces the stage's gradients over its data-parallel ranks beside its last backward; else as one
// bucket behind it.
[[nodiscard]] bool reduces_beside_backward(const Plan& plan, int stage);
// The same of what HSDP's copies add up: behind each sum within a copy, also of gradients that actions reduce.
[[nodiscard]] bool sums_copies_beside_backward(const Plan& plan, int stage);

// How the ranks that reduce a stage's gradients stand, of HSDP those of one copy. The reductions of other stages that
// share ports with theirs count as if all ran at once, an upper bound: they nearly do where they take long. With data
// degrees by stage those of other stages are not counted: all ranks of such a plan are simulated. Else that of the
// first pipeline rank is that of all.
[[nodiscard]] GroupPlacement reduction_placement(const Plan& plan, int stage);

// Of the ranks that share one copy of the states, and of those that have the same part in HSDP's copies (alone, without
// HSDP). Those of all stages count as if they ran at once.
[[nodiscard]] GroupPlacement shard_placement(const Layout& layout, const Cluster& cluster, int stage = 0);
[[nodiscard]] GroupPlacement copies_placement(const Layout& layout, const Cluster& cluster);
// The first, with the groups of ZeRO++ where there are any.
[[nodiscard]] ShardGroups shard_groups(const Layout& layout, const Cluster& cluster, int stage = 0);

// What moves weights and gradients of this layout, in its training's and software's types, among these groups. The
// cluster must outlive it.
[[nodiscard]] ShardMoves shard_moves(const Scenario& scenario, const ShardGroups& groups);
[[nodiscard]] ShardMoves shard_moves(const Plan& plan, const ShardGroups& groups);

// Of gradients, as the layout's weight rule has it.
[[nodiscard]] Collective reduction_kind(const Layout& layout);

// Of what actions gather and reduce, as weights and gradients of these types: blocks that come, and of gradients those
// that go, and the sums of the first all-to-all. And of what a stage gathers and reduces once a step: in UNSHARD, as
// `forward`, and behind the backward.
[[nodiscard]] QuantisedMoves quantised_moves(const DataLayout& data, ElementType weights, ElementType gradients,
                                             Bytes gathered, Bytes reduced);
[[nodiscard]] QuantisedMoves quantised_once(const Plan& plan, const ComputeCost& stage);

// A block with the times and the memory of what its actions gather and reduce: beside computing where `blocks_ahead`
// says so, else in its own times. Weights that stand on the host come up as its gathering's first
// part, or where a core copies, in the block's own times.
[[nodiscard]] ComputeCost with_data_moves(ComputeCost block, const Scenario& scenario, const ShardMoves& collectives);

// The same of all blocks of the plan's stages where several layers are gathered and reduced as one, which then depends
// on its split.
[[nodiscard]] bool gathers_in_units(const Layout& layout);
[[nodiscard]] std::vector<ComputeCost> with_units_of_layers(const Plan& plan, std::vector<ComputeCost> blocks);

// The action in which the last gradients are made; of slices the first one's.
[[nodiscard]] Seconds last_backward_time(const ComputeCost& cost, bool weight_gradient_last);
// In the order of the backward.
[[nodiscard]] std::vector<BlockGradients> gradients_of(std::span<const ComputeCost> blocks, bool weight_gradient_last);

// The collectives that add up a stage's gradients once a step, one bucket of them or all.
class GradientCollectives {
 public:
  // `plan` must outlive this; `groups`: of the stage's rank.
  GradientCollectives(const Plan& plan, const StageGroups& groups);

  // Of so many bytes of main gradients over the ranks that share a copy of the states, and of the own part of such over
  // HSDP's copies.
  [[nodiscard]] CollectivePlan reduction(Bytes gradients) const { return shards_.reduction(gradients); }
  [[nodiscard]] CollectivePlan sum_over_copies(double own) const;

 private:
  const Machine& machine_;
  ShardMoves shards_;
  GroupPlacement copies_;
};

// Of what is reduced once a step: over the ranks that share a copy, and of `replicated` bytes over HSDP's copies;
// beside the last backward where the software does so. Groups count as if nothing else ran: what the sums over copies
// and those inside a copy take of each other, where both go over the same NICs, is left to the simulation of all ranks.
[[nodiscard]] StageReduction reduction_of(const Plan& plan, std::span<const BlockGradients> made, Bytes replicated,
                                          int stage, const StageGroups& groups);

// Of weights, once a step.
[[nodiscard]] CollectivePlan gathering_of(const Plan& plan, Bytes gathered, const GroupPlacement& group);

}  // namespace plumb
