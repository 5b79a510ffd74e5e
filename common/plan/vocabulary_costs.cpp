#include "common/plan/vocabulary_costs.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/cost/device_time.hpp"
#include "common/model/divided_vocabulary.hpp"
#include "common/scenario/vocabulary_refusal.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

double hidden_bytes(const Plan& plan) { return static_cast<double>(bytes(plan.boundary).value); }

// Of each token one more than there are modules that predict further ones.
double heads(const Plan& plan) { return 1 + static_cast<double>(plan.model.mtp_modules); }

// All heads' hidden states read and written, each token by a factor, and of the part's own tokens, of p parts one in p,
// a row of weights or of their gradient.
Seconds scaling_time(const Plan& plan, const Machine& machine) {
  return streaming_time(machine.device, heads(plan) * hidden_bytes(plan) * (2 + 2.0 / plan.layout.pipeline));
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

PartCosts part_costs(const Plan& plan, const Scenario& scenario) {
  Scenario part = scenario;
  part.model = part_of_vocabulary(scenario.model, plan.layout.pipeline);
  part.layout.vocabulary_barriers = 0;
  part.software.exchange = PipelineExchange::asynchronous;  // they, too, compute beside what joins them
  std::vector<ComputeCost> blocks = block_costs(part, plan.training.microbatch);
  PartCosts costs{.head = std::move(blocks.back()), .embedding = std::move(blocks.front())};
  if (plan.layout.vocabulary_barriers == 1) {
    costs.head = backward_in_two(std::move(costs.head));
    costs.head.weight_gradient += scaling_time(plan, machine_in_training(scenario));
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
  const double hidden = hidden_bytes(plan);
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
    const Seconds scaling = scaling_time(plan, plan.cluster.machine);
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
  return {.least = states, .most = states + works + kept + bytes(plan.boundary) * exchanged};
}

void require_vocabulary_possible(const Plan& plan, bool has_profile) {
  const Layout& layout = plan.layout;
  if (const auto refusal = vocabulary_refusal(plan.schedule, layout)) {
    throw InputError("schedule", refusal->problem, refusal->hint);
  }
  if (const auto refusal = vocabulary_refusal(plan.model, layout, plan.training, has_profile)) {
    throw InputError("layout", refusal->problem, refusal->hint);
  }
}

}  // namespace plumb
