#include "common/plan/plan_costs.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "common/plan/block_costs.hpp"
#include "common/plan/pipeline_ways.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/registry.hpp"

namespace plumb {
namespace {

// Blocks as the plan's stages run them: where some layers of a stage are redone, it depends on the split.
std::vector<ComputeCost> as_split(const Plan& plan, std::vector<ComputeCost> blocks) {
  if (!costs_depend_on_split(plan.training.recompute)) return blocks;
  const bool divided = plan.layout.tensor.sequence_parallel;
  const Bytes input = bytes(plan.boundary) / (divided ? plan.layout.tensor.degree : 1);
  const std::vector<bool> redone = layers_redone_inside(plan);
  for (std::size_t layer = 0; layer < redone.size(); ++layer) {
    ComputeCost& block = blocks[layer + 1];  // block 0 is the embedding
    if (redone[layer]) block = redone_in_backward(block, input);
  }
  return blocks;
}

// Parts that were scattered over a tensor group are gathered on arrival.
Seconds gathering_time(const Plan& plan) {
  const TensorLayout& tensor = plan.layout.tensor;
  if (tensor.degree == 1 || tensor.sequence_parallel || !plan.software.scattered_messages) return {};
  return collective_time(plan.cluster.machine, Collective::all_gather, static_cast<double>(bytes(plan.boundary).value),
                         placement(plan.layout, MeshAxis::tensor, plan.cluster));
}

// Over the data-parallel ranks of a stage, after its last backward, or beside that of its last microbatch.
Seconds gradient_reduction(const Plan& plan, const ComputeCost& stage) {
  const GroupPlacement group = placement(plan.layout, MeshAxis::data, plan.cluster);
  const Seconds time = collective_time(plan.cluster.machine, Collective::all_reduce,
                                       static_cast<double>(stage.gradient_bytes.value), group);
  return plan.software.data_overlap ? std::max(time - backward_time(stage), Seconds{}) : time;
}

}  // namespace

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
  const bool made_for_times = std::ranges::any_of(
      schedule_entries(), [&](const ScheduleEntry& entry) { return entry.uses_times && entry.name == schedule.name; });
  if (made_for_times) return true;
  return std::ranges::any_of(schedule.actions, [](const std::vector<Action>& list) {
    return std::ranges::any_of(list, [](const Action& action) { return action.kind == ActionKind::input_gradient; });
  });
}

std::vector<ComputeCost> settled_blocks(const Plan& plan, const Scenario& scenario, std::vector<ComputeCost> blocks,
                                        bool backward_is_split) {
  for (ComputeCost& block : blocks) {
    block = per_slice(block, plan.schedule.slices);
    if (backward_is_split) block.hidden_in_backward = {};
  }
  // Two stages hold two tables, also where one rank holds both stages.
  if (plan.model.tied_embeddings) {
    blocks.back() = stages(plan.schedule) > 1 ? with_table_copy(blocks.back(), scenario, blocks.front())
                                              : with_table_gradient(blocks.back(), scenario);
  }
  return blocks;
}

std::vector<ComputeCost> plan_blocks(const Plan& plan, const Scenario& scenario) {
  return settled_blocks(plan, scenario, block_costs(scenario, plan.training.microbatch),
                        splits_backward(plan.schedule));
}

PipelineCosts costs_beside_stages(const Plan& plan, const Scenario& scenario) {
  const Machine& machine = plan.cluster.machine;
  const Software& software = plan.software;
  const std::int64_t table = plan.model.vocabulary * plan.model.hidden / plan.layout.tensor.degree;
  PipelineCosts costs{.stages = {},
                      .boundary_bytes = sent_boundary_bytes(plan),
                      .tied_bytes = {tied_over_ranks(plan) ? table * element_bytes(software.gradients) : 0},
                      .inside = {},
                      .outside = {},
                      .ranks_per_machine = pipeline_ranks_per_machine(plan.layout, machine),
                      .cores_per_machine = machine.cores,
                      .exchange = software.exchange,
                      .hidden_in_pairs = software.hidden_in_pairs,
                      .provenance = provenance(scenario),
                      .transport = {}};
  set_ways(costs, plan.layout, plan.cluster, gathering_time(plan));
  // Unlimited: one rank alone had nothing to measure.
  if (scenario.profile && std::isfinite(scenario.profile->transfer.bandwidth.value)) {
    costs.inside = scenario.profile->transfer;
    costs.transport = scenario.profile->transport;
  }
  return costs;
}

ComputeCost cost_of_stage(const Plan& plan, ComputeCost blocks, int stage) {
  blocks.gradient_reduction = gradient_reduction(plan, blocks);
  // Every rank has it once; its steps follow one another.
  const int rank = rank_in_replica(plan.schedule, 0, stage);
  blocks.optimizer += plan.software.step_overhead / static_cast<double>(stages_of_rank(plan.schedule, rank).size());
  return blocks;
}

PipelineCosts pipeline_costs(const Plan& plan, const Scenario& scenario, const std::vector<ComputeCost>& blocks) {
  const std::vector<ComputeCost> run = as_split(plan, blocks);
  PipelineCosts costs = costs_beside_stages(plan, scenario);
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    costs.stages.push_back(cost_of_stage(plan, stage_cost(run, plan.split, stage), stage));
  }
  return costs;
}

PipelineCosts predicted_costs(const Plan& plan, double expert_load) {
  Scenario scenario = scenario_of(plan);
  scenario.expert_load = expert_load;
  return pipeline_costs(plan, scenario, plan_blocks(plan, scenario));
}

void require_predicted_costs(const Plan& plan, const std::string& where) {
  if (plan.costs == predicted_costs(plan)) return;
  const bool measured = plan.costs.provenance.starts_with("profile of");
  throw InputError(where,
                   measured ? "the plan's costs are measured (" + plan.costs.provenance +
                                  "): they do not follow from the machine's numbers"
                            : "the plan's costs are not those that its machine, software and training predict: they "
                              "were edited, or written by another version of plumb",
                   "give a scenario without a profile, or its plan");
}

}  // namespace plumb
