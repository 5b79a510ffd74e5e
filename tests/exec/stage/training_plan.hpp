// Small plans that train.
#pragma once

#include <string>
#include <vector>

#include "common/graph/memory.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/plan/plan.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb::exec::test {

struct Wanted {
  Model model;
  std::string schedule = "1f1b";
  int ranks = 1;
  int chunks = 1;
  int microbatches = 4;
  ElementType precision = ElementType::fp32;
  bool recompute = false;
  int slices = 1;
  std::vector<std::int64_t> slice_tokens = {};  // of 32; none: equal
  int data = 1;                                 // degree
  int tensor = 1;
  bool sequence_parallel = false;
  TensorKind kind = TensorKind::one_d;
  int depth = 1;
  int microbatch = 2;  // sequences
  bool asynchronous = false;
  int vocabulary_barriers = 0;  // of one over the pipeline
};

// Of a divided vocabulary what is exchanged, in no time.
inline VocabularyCost exchanges_of(Plan plan) {
  if (plan.layout.vocabulary_barriers == 0) return {};
  plan.boundary = plan_boundary(plan);
  VocabularyCost cost = vocabulary_cost(plan);
  for (const auto& [name, join] : vocabulary_joins) cost.*join = {.bytes = (cost.*join).bytes};
  return cost;
}

inline Plan training_plan(const Wanted& wanted) {
  Plan plan;
  plan.name = wanted.model.name + " " + wanted.schedule;
  plan.model = wanted.model;
  plan.training.sequence = wanted.model.vision ? tokens(*wanted.model.vision) : 32;
  plan.training.microbatch = wanted.microbatch;
  plan.training.global_batch = wanted.microbatch * wanted.microbatches * wanted.data;
  plan.layout.tensor = {.degree = wanted.tensor,
                        .kind = wanted.kind,
                        .depth = wanted.depth,
                        .sequence_parallel = wanted.sequence_parallel,
                        .asynchronous = wanted.asynchronous};
  plan.training.precision = wanted.precision;
  plan.schedule = generate_schedule(wanted.schedule, {.ranks = wanted.ranks,
                                                      .microbatches = wanted.microbatches,
                                                      .chunks = wanted.chunks,
                                                      .slices = wanted.slices,
                                                      .vocabulary_barriers = wanted.vocabulary_barriers});
  const int count = stages(plan.schedule);
  plan.costs =
      even_costs(all_stages(plan.schedule),
                 {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}, .chunks = wanted.chunks});
  plan.costs.boundary_bytes = {wanted.microbatch * plan.training.sequence / wanted.slices * wanted.model.hidden *
                               element_bytes(wanted.precision) /
                               (divides_hidden_states(plan.layout.tensor) ? wanted.tensor : 1)};
  plan.schedule.slice_tokens = plan.costs.slice_tokens = wanted.slice_tokens;
  if (!wanted.slice_tokens.empty()) plan.costs.boundary_bytes = bytes(plan_boundary(plan));
  std::vector<bool> recomputed(static_cast<std::size_t>(count), wanted.recompute);
  recomputed.resize(plan.schedule.rank_of_stage.size());  // of parts of a vocabulary nothing is redone
  plan.schedule = with_recompute(plan.schedule, recomputed);
  plan.cluster.ranks = wanted.ranks * wanted.data * wanted.tensor;
  plan.layout.pipeline = wanted.ranks;
  plan.layout.data.degree = wanted.data;
  plan.layout.vocabulary_barriers = wanted.vocabulary_barriers;
  plan.costs.vocabulary = exchanges_of(plan);
  plan.split = uniform_split(static_cast<int>(wanted.model.layers.size()), count);
  return plan;
}

// Of which the plan could be made.
inline Scenario counted_scenario(const Plan& plan) {
  Scenario scenario;
  scenario.model = plan.model;
  scenario.cluster.ranks = scenario.cluster.machine.devices = plumb::ranks(plan.layout);
  scenario.layout = plan.layout;
  scenario.training = plan.training;
  return scenario;
}

// Each action takes a millisecond.
inline ComputeCost with_equal_times(ComputeCost block) {
  for (Seconds* time : {&block.forward, &block.input_gradient, &block.weight_gradient}) *time = {1e-3};
  block.hidden_in_backward = block.optimizer = {};
  block.slices.clear();
  return block;
}

// Gives the plan's stages the costs of these blocks, which are of its slices; what each rank then needs.
inline std::vector<RankMemory> predicted_of_slices(Plan& plan, const std::vector<ComputeCost>& blocks) {
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    plan.costs.stages[static_cast<std::size_t>(stage)] = stage_cost(blocks, plan.split, stage);
  }
  for (int part = stages(plan.schedule); part < all_stages(plan.schedule); ++part) {
    const auto [head, embedding] = part_costs(plan, test::counted_scenario(plan));
    const bool of_head = sort_of_stage(plan.schedule, part) == StageSort::head;
    plan.costs.stages[static_cast<std::size_t>(part)] = with_equal_times(of_head ? head : embedding);
  }
  const Schedule lowered = lower(plan.schedule, {});
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  return memory_over_time(graph, evaluate(graph), plan.costs, lowered);
}

// The same of blocks of whole sequences.
inline std::vector<RankMemory> predicted_memory(Plan& plan, std::vector<ComputeCost> blocks) {
  for (ComputeCost& block : blocks) block = per_slice(block, plan.schedule.slices);
  return predicted_of_slices(plan, blocks);
}

}  // namespace plumb::exec::test
