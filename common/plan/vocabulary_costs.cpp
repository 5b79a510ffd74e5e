#include "common/plan/vocabulary_costs.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/cost/device_time.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/model/divided_vocabulary.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

double hidden_bytes(const Plan& plan) { return static_cast<double>(bytes(plan.boundary).value); }

// Of one rank, whose tensor group may have other tokens on others.
Bytes hidden_of_rank(const Plan& plan) {
  const TensorLayout& tensor = plan.layout.tensor;
  return divides_hidden_states(tensor) ? bytes(plan.boundary) / tensor.degree : bytes(plan.boundary);
}

// Of each token one more than there are modules that predict further ones.
double heads(const Plan& plan) { return 1 + static_cast<double>(plan.model.mtp_modules); }

// All heads' hidden states read and written, each token by a factor, and of the rank's own targets, of p·t ranks one in
// p·t of all, a row of the weights' gradient.
Seconds scaling_time_of_input(const Plan& plan, const Machine& machine) {
  const double ranks = plan.layout.pipeline * plan.layout.tensor.degree;
  return streaming_time(machine.device, heads(plan) * hidden_bytes(plan) * (2 + 2 / ranks));
}

// The same of the gradient, less the targets' rows of weights; a tensor group has added these up, of all tokens.
Seconds scaling_time_of_gradient(const Plan& plan, const Machine& machine) {
  const bool added_up = sort_of_part(plan.layout) == ModelPart::vocabulary_and_target_rows;
  const double rows = added_up ? 1 : 2.0 / plan.layout.pipeline;
  return streaming_time(machine.device, heads(plan) * static_cast<double>(hidden_of_rank(plan).value) * (2 + rows));
}

// The fastest of those that are one phase, which one flow of each rank is. `moved`: as the collective counts them.
JoinCost joined(const Plan& plan, Collective kind, double moved, double bytes) {
  const Machine& machine = plan.cluster.machine;
  const GroupPlacement group = placement(plan.layout, MeshAxis::pipeline, plan.cluster, Together::all_stages);
  CollectivePlan best = plan_of(CollectiveAlgorithm::ring, machine, kind, moved, group);
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::tree, CollectiveAlgorithm::in_switch}) {
    if (!applies(algorithm, machine, kind, group)) continue;
    const CollectivePlan other = plan_of(algorithm, machine, kind, moved, group);
    if (other.count == 1 && time_of(other) < time_of(best)) best = other;
  }
  const CollectivePhase& phase = best.phases.front();
  return {.bytes = {std::llround(bytes)},
          .latency = phase.latency,
          .inside = phase.inside,
          .outside = phase.outside,
          .alone = time_of(best)};
}

}  // namespace

Scenario scenario_of_part(const Plan& plan, Scenario scenario) {
  scenario.model = part_of_vocabulary(std::move(scenario.model), sort_of_part(plan.layout), plan.layout.pipeline);
  scenario.layout.vocabulary_barriers = 0;
  scenario.software.exchange = PipelineExchange::asynchronous;  // they, too, compute beside what joins them
  return scenario;
}

PartCosts part_costs(const Plan& plan, const Scenario& scenario) {
  const Scenario part = scenario_of_part(plan, scenario);
  std::vector<ComputeCost> blocks = block_costs(part, plan.training.microbatch);
  PartCosts costs{.head = std::move(blocks.back()), .embedding = std::move(blocks.front())};
  if (plan.layout.vocabulary_barriers == 1) {
    costs.head = backward_in_two(std::move(costs.head));
    costs.head.weight_gradient += scaling_time_of_input(plan, machine_in_training(scenario));
  }
  return costs;
}

std::vector<ComputeCost> part_stages(const Plan& plan, const PartCosts& parts, const StageGroups& groups) {
  std::vector<ComputeCost> costs;
  for (int stage = stages(plan.schedule); stage < all_stages(plan.schedule); ++stage) {
    const bool head = sort_of_stage(plan.schedule, stage) == StageSort::head;
    const std::vector<ComputeCost> block{head ? parts.head : parts.embedding};
    costs.push_back(cost_of_stage(plan, block, in_sequence(block), stage, groups));
  }
  return costs;
}

VocabularyCost vocabulary_cost(const Plan& plan) {
  const int barriers = plan.layout.vocabulary_barriers;
  if (barriers == 0) return {};
  constexpr double bytes_of_token = 12;  // three numbers in fp32
  const auto hidden = static_cast<double>(hidden_of_rank(plan).value);
  const double ranks = plan.layout.pipeline;
  const double statistics =
      heads(plan) * bytes_of_token * static_cast<double>(plan.training.microbatch * plan.training.sequence);
  // An all-gather's ring sends (p−1)/p of all bytes over each of its links, a broadcast's or a sum's all of them.
  const auto one_way = [&](double all) { return joined(plan, Collective::all_gather, all * ranks / (ranks - 1), all); };
  const JoinCost of_heads = one_way(heads(plan) * hidden);
  const JoinCost of_embedding = one_way(hidden);
  VocabularyCost cost{.parts = plan.layout.pipeline,
                      .head_broadcast = of_heads,
                      .statistics = joined(plan, Collective::all_reduce, statistics, statistics),
                      .head_sum = of_heads,
                      .embedding_sum = of_embedding,
                      .embedding_broadcast = of_embedding,
                      .inside = plan.cluster.machine.collective_bandwidth.value};
  if (barriers == 1) {
    const Seconds scaling = scaling_time_of_gradient(plan, plan.cluster.machine);
    cost.head_sum.latency += scaling;
    cost.head_sum.alone += scaling;
  }
  return cost;
}

PartMemory part_memory(const Plan& plan) {
  if (plan.layout.vocabulary_barriers == 0) return {};
  const auto [head, embedding] = part_costs(plan, scenario_of(plan));
  const Bytes states = states_held(head) + states_held(embedding);
  const Bytes works =
      std::max({head.forward_workspace_bytes, head.input_gradient_workspace_bytes, head.weight_gradient_workspace_bytes,
                backward_workspace(head), backward_workspace(embedding)});
  // T frees a microbatch before S takes the next one.
  const Bytes kept = std::max(head.kept_bytes, head.kept_for_weight_bytes) + embedding.kept_bytes * std::int64_t{2};
  const std::int64_t exchanged = 2 * (plan.model.mtp_modules + 1) + 2;  // read and made by the head, and the embedding
  return {.least = states, .most = states + works + kept + hidden_of_rank(plan) * exchanged};
}

}  // namespace plumb
