#include "common/plan/plan_costs.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/block_work.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/block_cost/offloaded.hpp"
#include "common/cost/links/pipeline_links.hpp"
#include "common/cost/links/stage_links.hpp"
#include "common/layout/message_shares.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/gradient_clipping.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/reductions.hpp"

namespace plumb {
namespace {

void put_activations_on_host(std::vector<ComputeCost>& blocks, const Scenario& scenario) {
  if (!scenario.training.offload.activations) return;
  for (ComputeCost& block : blocks) block = with_activations_on_host(std::move(block), scenario);
}

// Blocks as the plan's stages run them: where some layers of a stage are redone, it depends on the split, and so does
// then what goes to the host; and where several layers are gathered as one.
std::vector<ComputeCost> as_split(const Plan& plan, std::vector<ComputeCost> blocks) {
  if (!costs_depend_on_split(plan.training.recompute)) return with_units_of_layers(plan, std::move(blocks));
  const std::vector<bool> redone = layers_redone_inside(plan);
  for (std::size_t layer = 0; layer < redone.size(); ++layer) {
    ComputeCost& block = blocks[layer + 1];  // block 0 is the embedding
    if (redone[layer]) block = redone_in_backward(std::move(block));
  }
  put_activations_on_host(blocks, scenario_of(plan));
  return with_units_of_layers(plan, std::move(blocks));
}

// By how much STEP takes longer than what the device updates: by what goes to the host and back, and is updated there.
Seconds more_in_step(const Plan& plan, std::span<const ComputeCost> blocks) {
  const Offload& offload = plan.training.offload;
  if (!offload.optimizer && !offload.parameters) return {};
  std::vector<StepPiece> pieces;
  Seconds here;  // that the pieces have in them
  for (const ComputeCost& block : blocks) {
    if (offload.optimizer) {
      pieces.push_back(updated_on_host(block.host_moves));
    } else {
      pieces.push_back(updated_on_device(block.host_moves, block.optimizer));
      here += block.optimizer;
    }
  }
  return offloaded_step_time(pieces, copies_beside_update(plan.cluster.machine)) - here;
}

// Parts of `boundary` that were scattered over a tensor group are gathered on arrival.
Seconds gathering_time(const Plan& plan, Bytes boundary) {
  if (!gathers_messages(plan.software, plan.layout.tensor)) return {};
  return collective_time(plan.cluster.machine, Collective::all_gather, static_cast<double>(boundary.value),
                         tensor_placement(as_all(plan.layout, 0), plan.cluster));
}

// Hidden states of the share of a microbatch that a pipeline rank's ranks take.
Bytes boundary_of_rank(const Plan& plan, int rank) {
  return bytes(plan.boundary) * share_of_stage(plan.layout, rank, plan.training.microbatch) / plan.training.microbatch;
}

std::vector<BoundaryCost> boundaries(const Plan& plan) {
  std::vector<BoundaryCost> all;
  for (int stage = 0; stage + 1 < stages(plan.schedule); ++stage) {
    const int from = plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)];
    const int to = plan.schedule.rank_of_stage[static_cast<std::size_t>(stage) + 1];
    const Bytes before = boundary_of_rank(plan, from);
    const Bytes behind = boundary_of_rank(plan, to);
    all.push_back(boundary_between(plan.layout, plan.cluster, from, to, sent_of(plan, before), sent_of(plan, behind)));
    if (from != to) all.back().way.latency += gathering_time(plan, std::max(before, behind));
  }
  return all;
}

// What messages of slices of different lengths differ in.
void set_slices(PipelineCosts& costs, const Plan& plan) {
  costs.slice_tokens = plan.schedule.slice_tokens;
  const std::int64_t most = std::ranges::max(costs.slice_tokens);
  bool gathers = false;
  for (const std::int64_t tokens : costs.slice_tokens) {
    costs.slice_gathering.push_back(gathering_time(plan, bytes_of_tokens(bytes(plan.boundary), tokens, most)));
    gathers = gathers || costs.slice_gathering.back().value > 0;
  }
  if (!gathers) costs.slice_gathering.clear();
}

}  // namespace

bool was_made_for_times(const Schedule& schedule) {
  return std::ranges::any_of(
      schedule_entries(), [&](const ScheduleEntry& entry) { return entry.uses_times && entry.name == schedule.name; });
}

Scenario scenario_of(const Plan& plan) {
  return {.name = plan.name,
          .model = plan.model,
          .cluster = plan.cluster,
          .training = plan.training,
          .layout = plan.layout,
          .software = plan.software};
}

bool costs_depend_on_split(const Recompute& recompute) {
  return recompute.mode == RecomputeMode::first_layers || recompute.mode == RecomputeMode::every_nth_layer;
}

std::vector<bool> layers_redone_inside(const Plan& plan) {
  const Recompute& recompute = plan.training.recompute;
  std::vector<bool> redone(plan.model.layers.size(), redoes_every_layer_inside(plan.training, plan.software));
  std::vector<int> of_rank(static_cast<std::size_t>(plan.schedule.ranks), 0);  // counted so far
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < plan.split.layers.size(); ++stage) {
    int& counted = of_rank[static_cast<std::size_t>(plan.schedule.rank_of_stage[stage])];
    for (int i = 0; i < plan.split.layers[stage]; ++i, ++layer) {
      ++counted;
      if (recompute.mode == RecomputeMode::first_layers) redone[layer] = i < recompute.layers;
      if (recompute.mode == RecomputeMode::every_nth_layer) redone[layer] = counted % recompute.layers == 0;
    }
  }
  return redone;
}

bool splits_backward(const Schedule& schedule) {
  const auto splits = [&](const Action& action) {  // of the stages that follow one another
    return action.kind == ActionKind::input_gradient && action.stage < stages(schedule);
  };
  return was_made_for_times(schedule) ||
         std::ranges::any_of(schedule.actions, [&](const auto& list) { return std::ranges::any_of(list, splits); });
}

std::vector<bool> weight_gradient_last(const Schedule& schedule) {
  std::vector<bool> last(schedule.rank_of_stage.size(), splits_backward(schedule));
  for (const std::vector<Action>& list : schedule.actions) {
    for (const Action& action : last_weight_gradients(list)) {
      last[static_cast<std::size_t>(action.stage)] = action.kind == ActionKind::weight_gradient;
    }
  }
  return last;
}

std::vector<ComputeCost> settled_blocks(const Plan& plan, const Scenario& scenario, std::vector<ComputeCost> blocks,
                                        bool backward_is_split) {
  for (ComputeCost& block : blocks) {
    if (backward_is_split) block = backward_in_two(std::move(block));
  }
  settle_tied_head(blocks, scenario, stages(plan.schedule));
  const bool in_actions = gathers_in_actions(scenario.layout) || reduces_in_actions(scenario.layout);
  if (in_actions && !gathers_in_units(scenario.layout)) {
    const ShardMoves moves = shard_moves(scenario, shard_groups(scenario.layout, scenario.cluster));
    for (ComputeCost& block : blocks) block = with_data_moves(std::move(block), scenario, moves);
  }
  if (!costs_depend_on_split(scenario.training.recompute)) put_activations_on_host(blocks, scenario);
  return blocks;
}

std::vector<ComputeCost> plan_blocks(const Plan& plan, const Scenario& scenario) {
  return settled_blocks(plan, scenario, block_costs(scenario, plan.training.microbatch, slices_of(plan)),
                        splits_backward(plan.schedule));
}

std::vector<ComputeCost> blocks_as_split(const Plan& plan) {
  return as_split(plan, plan_blocks(plan, scenario_of(plan)));
}

PipelineCosts costs_beside_stages(const Plan& plan, const Scenario& scenario) {
  const Machine& machine = plan.cluster.machine;
  const Software& software = plan.software;
  const std::int64_t table = tied_over_ranks(plan) ? table_of_rank(scenario) : 0;
  PipelineCosts costs{.stages = {},
                      .boundary_bytes = sent_boundary_bytes(plan),
                      .tied_bytes = {table * element_bytes(software.gradients)},
                      .inside = {},
                      .outside = {},
                      .ranks_per_machine = pipeline_ranks_per_machine(plan.layout, machine),
                      .cores_per_machine = machine.cores,
                      .cores_per_rank = cores_per_pipeline_rank(plan.layout, machine),
                      .exchange = software.exchange,
                      .hidden_in_pairs = software.hidden_in_pairs,
                      .provenance = provenance(scenario),
                      .transport = {}};
  costs.gradient_clipping = clipping_time(plan);
  costs.vocabulary = vocabulary_cost(plan);
  if (plan.schedule.slice_tokens.empty()) {
    set_links(costs, plan.layout, plan.cluster, gathering_time(plan, bytes(plan.boundary)));
  } else {
    set_links(costs, plan.layout, plan.cluster, {});
    set_slices(costs, plan);
  }
  // Unlimited: one rank alone had nothing to measure.
  if (scenario.profile && std::isfinite(scenario.profile->transfer.bandwidth.value)) {
    costs.inside = scenario.profile->transfer;
    costs.transport = scenario.profile->transport;
  }
  return costs;
}

Seconds tensor_sum_time(const ComputeCost& cost, const Machine& machine, const TensorGroups& groups) {
  if (!cost.grid_sums.empty()) return time_of(cost.grid_sums, machine, groups);
  if (cost.tensor_gradient_bytes == Bytes{}) return {};
  return collective_time(machine, Collective::all_reduce, static_cast<double>(cost.tensor_gradient_bytes.value),
                         groups.all());
}

StageGroups stage_groups(const Plan& plan, int rank) {
  return {.tensor = tensor_groups(as_all(plan.layout, rank), plan.cluster),
          .data = shard_groups(plan.layout, plan.cluster, rank),
          .copies = copies_placement(plan.layout, plan.cluster),
          .reduction = reduction_kind(plan.layout),
          .weight_gradient_last = weight_gradient_last(plan.schedule)};
}

ComputeCost cost_of_stage(const Plan& plan, std::span<const ComputeCost> blocks, ComputeCost sum, int stage,
                          const StageGroups& groups) {
  const int rank = rank_in_replica(plan.schedule, 0, stage);
  const bool weight_last = groups.weight_gradient_last.at(static_cast<std::size_t>(stage));
  const StageReduction reduction =
      reduction_of(plan, gradients_of(blocks, weight_last), sum.data_moves.replicated, stage, groups);
  const bool beside = reduces_beside_backward(plan, stage) || !reduction.reduced.empty();
  sum.gradient_reduction = exposed(reduction, beside ? last_backward_time(sum, weight_last) : Seconds{});
  if (sum.gathered_bytes > Bytes{}) {
    sum.weight_gathering = time_of(gathering_of(plan, sum.gathered_bytes, groups.data.all));
  }
  sum.data_moves.quantised += quantised_once(plan, sum);
  sum.optimizer += more_in_step(plan, blocks);
  sum.optimizer += tensor_sum_time(sum, plan.cluster.machine, groups.tensor);
  // Every rank has it once; its steps follow one another.
  sum.optimizer += plan.software.step_overhead / static_cast<double>(stages_of_rank(plan.schedule, rank).size());
  return sum;
}

PipelineCosts pipeline_costs(const Plan& plan, const Scenario& scenario, const std::vector<ComputeCost>& blocks) {
  const std::vector<ComputeCost> run = as_split(plan, blocks);
  const StageGroups groups = stage_groups(plan, 0);
  PipelineCosts costs = costs_beside_stages(plan, scenario);
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    costs.stages.push_back(
        cost_of_stage(plan, stage_blocks(run, plan.split, stage), stage_cost(run, plan.split, stage), stage, groups));
  }
  if (plan.layout.vocabulary_barriers == 0) return costs;
  for (ComputeCost& part : part_stages(plan, part_costs(plan, scenario), groups)) {
    costs.stages.push_back(std::move(part));
  }
  return costs;
}

RankBlocks blocks_by_rank(const Plan& plan, const Scenario& scenario) {
  if (const auto uneven = uneven_shares(plan.layout, plan.training.microbatch)) throw InputError("layout", *uneven);
  const bool backward_is_split = splits_backward(plan.schedule);
  RankBlocks blocks;
  for (int rank = 0; rank < plan.layout.pipeline; ++rank) {
    const auto end = plan.layout.stage_data.begin() + rank;
    const auto same = std::find(plan.layout.stage_data.begin(), end, data_degree(plan.layout, rank));
    if (same != end) {
      blocks.push_back(blocks[static_cast<std::size_t>(same - plan.layout.stage_data.begin())]);
      continue;
    }
    Scenario at = scenario;
    at.layout = as_all(plan.layout, rank);
    const std::int64_t share = share_of_stage(plan.layout, rank, plan.training.microbatch);
    blocks.push_back(settled_blocks(plan, at, block_costs(at, share, slices_of(plan)), backward_is_split));
  }
  return blocks;
}

PipelineCosts stage_data_costs(const Plan& plan, const Scenario& scenario, const RankBlocks& blocks) {
  PipelineCosts costs = costs_beside_stages(plan, scenario);
  costs.boundaries = boundaries(plan);
  RankBlocks run;
  std::vector<StageGroups> groups;
  for (int rank = 0; rank < plan.layout.pipeline; ++rank) {
    groups.push_back(stage_groups(plan, rank));
    run.push_back(as_split(plan, blocks[static_cast<std::size_t>(rank)]));
  }
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    const auto rank = static_cast<std::size_t>(plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
    costs.stages.push_back(cost_of_stage(plan, stage_blocks(run[rank], plan.split, stage),
                                         stage_cost(run[rank], plan.split, stage), stage, groups[rank]));
  }
  return costs;
}

std::vector<std::vector<BlockGradients>> gradients_in_backward(const Plan& plan) {
  const bool by_block = plan.software.data_overlap && !has_measured_costs(plan);
  const bool apart = has_stage_data(plan.layout);
  RankBlocks blocks;  // of each pipeline rank, or of all
  if (by_block) {
    const Scenario scenario = scenario_of(plan);
    if (apart) blocks = blocks_by_rank(plan, scenario);
    if (!apart) blocks = {plan_blocks(plan, scenario)};
    for (std::vector<ComputeCost>& of_rank : blocks) of_rank = as_split(plan, std::move(of_rank));
  }
  const std::vector<bool> weight_last = weight_gradient_last(plan.schedule);
  std::vector<std::vector<BlockGradients>> all;
  for (int stage = 0; stage < all_stages(plan.schedule); ++stage) {
    const bool one_block = !by_block || stage >= stages(plan.schedule);  // as a part of a vocabulary is
    const int rank = apart ? plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)] : 0;
    const std::span<const ComputeCost> whole{&plan.costs.stages[static_cast<std::size_t>(stage)], 1};
    all.push_back(
        gradients_of(one_block ? whole : stage_blocks(blocks[static_cast<std::size_t>(rank)], plan.split, stage),
                     weight_last[static_cast<std::size_t>(stage)]));
  }
  return all;
}

std::vector<CollectivePlan> planned_gathering(const Plan& plan, int stage) {
  const Bytes gathered = plan.costs.stages[static_cast<std::size_t>(stage)].gathered_bytes;
  if (gathered == Bytes{}) return {};
  return {gathering_of(plan, gathered, reduction_placement(plan, stage))};
}

std::vector<StageReduction> planned_reductions(const Plan& plan) {
  const bool apart = has_stage_data(plan.layout);
  const std::vector<std::vector<BlockGradients>> made = gradients_in_backward(plan);
  StageGroups groups = stage_groups(plan, 0);
  std::vector<StageReduction> all;
  for (int stage = 0; stage < all_stages(plan.schedule); ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    if (apart) groups.data = {.all = reduction_placement(plan, stage)};
    all.push_back(reduction_of(plan, made[at], plan.costs.stages[at].data_moves.replicated, stage, groups));
  }
  return all;
}

PipelineCosts predicted_costs(const Plan& plan, double expert_load) {
  Scenario scenario = scenario_of(plan);
  scenario.expert_load = expert_load;
  if (has_stage_data(plan.layout)) return stage_data_costs(plan, scenario, blocks_by_rank(plan, scenario));
  return pipeline_costs(plan, scenario, plan_blocks(plan, scenario));
}

bool has_measured_costs(const Plan& plan) { return plan.costs.provenance.starts_with(measured_provenance); }

void require_predicted_costs(const Plan& plan, const std::string& where) {
  if (plan.costs == predicted_costs(plan)) return;
  throw InputError(where,
                   has_measured_costs(plan)
                       ? "the plan's costs are measured (" + plan.costs.provenance +
                             "): they do not follow from the machine's numbers"
                       : "the plan's costs are not those that its machine, software and training predict: they "
                         "were edited, or written by another version of plumb",
                   "give a scenario without a profile, or its plan");
}

}  // namespace plumb
