// What a plan costs, from what it holds: for another machine, software or training with its schedule and split as they
// stand.
#pragma once

#include <span>
#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/cost/gradient_buckets.hpp"
#include "common/cost/shard_moves.hpp"
#include "common/cost/tensor_groups.hpp"
#include "common/plan/plan.hpp"

namespace plumb {

// What the plan was made of; without a profile, and without what it was chosen from.
[[nodiscard]] Scenario scenario_of(const Plan& plan);

// True where a block costs what its place in its stage makes it cost: a stage is then no sum over its blocks alone.
[[nodiscard]] bool costs_depend_on_split(const Recompute& recompute);

// Of the model's layers, those whose forward is redone inside the backward: all, of each stage the first k, or of each
// rank every n-th: its layers are counted from 1 through all its stages in their order, as torchtitan counts them in
// one process (`_apply_layer_sac` in github.com/pytorch/torchtitan, torchtitan/distributed/activation_checkpoint.py).
// A stage that a bidirectional schedule holds twice is counted on the rank of its first replica.
[[nodiscard]] std::vector<bool> layers_redone_inside(const Plan& plan);

// As one that is_made_for_times: a finished schedule is known by its name, which need not be that of a generator.
[[nodiscard]] bool was_made_for_times(const Schedule& schedule);

// True if a schedule is costed as one that runs I and W apart (one made for times always is): messages then wait for
// nobody, and no collective of I hides behind W.
[[nodiscard]] bool splits_backward(const Schedule& schedule);

// The blocks of `block_costs` as the plan's stages hold them: with the table of a tied head; a backward in two hides
// nothing; offloaded activations are on the host, unless what is kept depends on the split; with what their actions
// gather and reduce, unless units of that depend on it. They are of the plan's slices already. `plan` lacks split and
// costs; of its schedule the placement counts.
[[nodiscard]] std::vector<ComputeCost> settled_blocks(const Plan& plan, const Scenario& scenario,
                                                      std::vector<ComputeCost> blocks, bool backward_is_split);

// Layers + 2 entries, as `block_costs` gives them, as the plan's schedule runs them: of one slice of a microbatch, with
// the table of a tied head where it stands. Errors as `block_costs`.
[[nodiscard]] std::vector<ComputeCost> plan_blocks(const Plan& plan, const Scenario& scenario);

// The same by the plan's split, of a plan with predicted costs: where some layers of a stage are redone inside their
// backward, these too, and then what is offloaded; where layers are gathered in units, with these.
[[nodiscard]] std::vector<ComputeCost> blocks_as_split(const Plan& plan);

// Of each pipeline rank the blocks of plan_blocks with its own share of a microbatch: of data degrees by stage. Throws
// InputError where the shares are not whole.
using RankBlocks = std::vector<std::vector<ComputeCost>>;
[[nodiscard]] RankBlocks blocks_by_rank(const Plan& plan, const Scenario& scenario);

// Whether the last gradients of each stage are made by a W of its own, not by a B. Where the schedule has no actions
// yet, as its name says.
[[nodiscard]] std::vector<bool> weight_gradient_last(const Schedule& schedule);

// Where the groups of a pipeline rank's ranks stand: of tensor parallelism, and those that reduce gradients; and what
// these may hide behind, by stage.
struct StageGroups {
  TensorGroups tensor;
  ShardGroups data;            // that share one copy of the states
  GroupPlacement copies = {};  // that have the same part in copies of HSDP
  Collective reduction = Collective::all_reduce;
  std::vector<bool> weight_gradient_last = {};
};
[[nodiscard]] StageGroups stage_groups(const Plan& plan, int rank);

// What a tensor group's ranks have summands of, added up.
[[nodiscard]] Seconds tensor_sum_time(const ComputeCost& cost, const Machine& machine, const TensorGroups& groups);

// A plan's costs are these, and of each stage those of its blocks in sequence with what it takes once a step: gradients
// that ranks of a tensor group have summands of are added up by one all-reduce before the optimizer, as part of it
// (`_allreduce_non_tensor_model_parallel_grads` in github.com/NVIDIA/Megatron-LM,
// megatron/core/distributed/finalize_model_grads.py). `groups`: of its rank, for
// the plan's schedule, of which else the placement counts.
[[nodiscard]] PipelineCosts costs_beside_stages(const Plan& plan, const Scenario& scenario);
// `sum`: that of `blocks`, which are all of the stage.
[[nodiscard]] ComputeCost cost_of_stage(const Plan& plan, std::span<const ComputeCost> blocks, ComputeCost sum,
                                        int stage, const StageGroups& groups);

// Of each stage its blocks in the order of the backward. Of a plan with measured costs, which are of whole stages, a
// stage is one block; so it is where nothing is reduced beside a backward.
[[nodiscard]] std::vector<std::vector<BlockGradients>> gradients_in_backward(const Plan& plan);

// Of each stage the all-reduces of its gradients, reduce-scatters where states are shared out
// (common/cost/gradient_buckets.hpp), from its last backward's start where they overlap it; none without data
// parallelism. Of a plan with measured costs, which are of whole stages, all buckets wait for the whole backward.
// With the all-reduces over HSDP's copies; none without HSDP.
[[nodiscard]] std::vector<StageReduction> planned_reductions(const Plan& plan);
// Of a stage the all-gather of its updated weights; none where each rank updates all.
[[nodiscard]] std::vector<CollectivePlan> planned_gathering(const Plan& plan, int stage);

// The costs of the plan's stages and messages; its split and schedule are settled, its data degrees are one. `blocks`:
// those of plan_blocks; where the first layers of each stage are redone, the split says which.
[[nodiscard]] PipelineCosts pipeline_costs(const Plan& plan, const Scenario& scenario,
                                           const std::vector<ComputeCost>& blocks);

// The same of data degrees by stage.
[[nodiscard]] PipelineCosts stage_data_costs(const Plan& plan, const Scenario& scenario, const RankBlocks& blocks);

// What a plan's own costs would be by its model, cluster, training and software. `expert_load`: of the rank whose
// experts are chosen most, over the mean of all; their matmuls and activations grow with it.
[[nodiscard]] PipelineCosts predicted_costs(const Plan& plan, double expert_load = 1);

// Whether they came from a profile, by their provenance.
[[nodiscard]] bool has_measured_costs(const Plan& plan);

// Throws InputError (`where`) if the plan's costs are others than those: then they were measured (a profile) or edited,
// and do not follow from the machine's numbers.
void require_predicted_costs(const Plan& plan, const std::string& where);

}  // namespace plumb
