#include "common/plan/host_memory.hpp"

#include <algorithm>
#include <string>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/graph/evaluate.hpp"
#include "common/graph/memory.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/sharding.hpp"
#include "common/plan/counted_stages.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/plan_features.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

// Of the rank's stages that hold so many microbatches each.
Bytes activations_of(const std::vector<ComputeCost>& stages, const std::vector<int>& own,
                     const std::vector<int>& held) {
  Bytes sum;
  for (std::size_t n = 0; n < own.size(); ++n) {
    sum += stages[static_cast<std::size_t>(own[n])].activation_moves.kept * held[n];
  }
  return sum;
}

Bytes kept_of_rank(const std::vector<ComputeCost>& stages, const Schedule& schedule, const HeldOnHost& held, int rank) {
  const std::vector<int> own = stages_of_rank(schedule, rank);
  Bytes states;
  for (const int stage : own) states += stages[static_cast<std::size_t>(stage)].host_moves.kept;
  Bytes most;
  if (held.empty()) return states;
  for (const std::vector<int>& moment : held[static_cast<std::size_t>(rank)]) {
    most = std::max(most, activations_of(stages, own, moment));
  }
  return states + most;
}

bool any_activations_on_host(const std::vector<ComputeCost>& stages) {
  return std::ranges::any_of(stages, [](const ComputeCost& cost) { return cost.activation_moves.kept > Bytes{}; });
}

RankOnHost fullest_of(const std::vector<ComputeCost>& stages, const Schedule& schedule, const HeldOnHost& held) {
  RankOnHost most;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const Bytes kept = kept_of_rank(stages, schedule, held, rank);
    if (kept > most.kept) most = {.rank = rank, .kept = kept};
  }
  return most;
}

bool can_offload(const Plan& plan) {
  return !is_refused(used_features(plan, has_measured_costs(plan)).set, Purpose::plan);
}

Bytes peak_of(const Plan& plan, int rank) {
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  return memory_over_time(graph, evaluate(graph), plan.costs, lowered)[static_cast<std::size_t>(rank)].peak_bytes;
}

// States are there all the time, and so are own parts of weights, whatever is gathered.
OffloadChoice of_states(const Plan& plan, const Plan& other, int rank) {
  const auto states_of_rank = [&](const std::vector<ComputeCost>& stages) {
    Bytes all;
    for (const int stage : stages_of_rank(plan.schedule, rank)) {
      all += states_held(stages[static_cast<std::size_t>(stage)]);
    }
    return all;
  };
  const std::vector<ComputeCost> now = counted_stages(plan);
  const std::vector<ComputeCost> then = counted_stages(other);
  Bytes on_host;
  for (const int stage : stages_of_rank(plan.schedule, rank)) {
    const auto at = static_cast<std::size_t>(stage);
    on_host += then[at].host_moves.kept - now[at].host_moves.kept;
  }
  return {.offload = other.training.offload, .freed = states_of_rank(now) - states_of_rank(then), .on_host = on_host};
}

}  // namespace

HeldOnHost held_on_host(const Plan& plan) {
  return plan.training.offload.activations ? fullest_moments_until_input(plan.schedule) : HeldOnHost{};
}

std::vector<RankOnHost> on_hosts(const std::vector<ComputeCost>& stages, const Schedule& schedule) {
  const bool activations = any_activations_on_host(stages);
  const HeldOnHost held = activations ? fullest_moments_until_input(schedule) : HeldOnHost{};
  std::vector<RankOnHost> all;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    RankOnHost& own = all.emplace_back(RankOnHost{.rank = rank});
    own.kept = kept_of_rank(stages, schedule, held, rank);
    for (const int stage : stages_of_rank(schedule, rank)) {
      const HostMoves& moves = stages[static_cast<std::size_t>(stage)].host_moves;
      own.down += moves.down;
      own.up += moves.up;
    }
    for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
      if (!gathers_weights(action.kind)) continue;
      const ComputeCost& cost = stages[static_cast<std::size_t>(action.stage)];
      own.up += cost.parameter_moves.up;
      if (action.kind != ActionKind::forward) continue;
      own.down += cost.activation_moves.kept;
      own.up += cost.activation_moves.kept;
    }
  }
  return all;
}

RankOnHost on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule, int rank) {
  return on_hosts(stages, schedule)[static_cast<std::size_t>(rank)];
}

RankOnHost fullest_on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule) {
  const std::vector<RankOnHost> all = on_hosts(stages, schedule);
  return *std::ranges::max_element(all, {}, [](const RankOnHost& own) { return own.kept; });
}

std::vector<OffloadChoice> offload_choices(const Plan& plan, int rank) {
  std::vector<OffloadChoice> all;
  Plan other = plan;
  for (bool Offload::*const states : {&Offload::optimizer, &Offload::parameters}) {
    other.training.offload = plan.training.offload;
    other.training.offload.*states = true;
    if (other.training.offload == plan.training.offload || !can_offload(other)) continue;
    all.push_back(of_states(plan, other, rank));
  }
  other.training.offload = plan.training.offload;
  other.training.offload.activations = true;
  if (other.training.offload != plan.training.offload && can_offload(other) && !has_measured_costs(plan)) {
    other.costs = predicted_costs(other);
    const Bytes now = on_host(plan.costs.stages, plan.schedule, rank).kept;
    all.push_back({.offload = other.training.offload,
                   .freed = peak_of(plan, rank) - peak_of(other, rank),
                   .on_host = on_host(other.costs.stages, plan.schedule, rank).kept - now});
  }
  std::erase_if(all, [](const OffloadChoice& choice) { return choice.freed <= Bytes{}; });
  return all;
}

Bytes too_much_on_host(const Plan& plan, const PipelineCosts& costs, const HeldOnHost& held) {
  if (!offloads(plan.training.offload)) return -plan.cluster.machine.host.memory.value;
  return fullest_of(costs.stages, plan.schedule, held).kept - plan.cluster.machine.host.memory.value;
}

void require_host_memory(const Plan& plan, const PipelineCosts& costs, const HeldOnHost& held) {
  if (!offloads(plan.training.offload)) return;
  const RankOnHost most = fullest_of(costs.stages, plan.schedule, held);
  const Bytes there = plan.cluster.machine.host.memory.value;
  if (most.kept <= there) return;
  const Offload& offload = plan.training.offload;
  const char* const smaller = offload.activations  ? "a smaller microbatch, fewer of them at once, or recompute: full"
                              : offload.parameters ? "more ranks that share them out (data: {degree: ...})"
                                                   : "more ranks that share the states out (data: {sharding: zero1})";
  throw InputError("training",
                   "offload of " + describe(offload) + ": rank " + std::to_string(most.rank) + " keeps " +
                       to_text(most.kept) + " on its host, of which it may use " + to_text(there) + ", " +
                       to_text(most.kept - there) + " too much",
                   std::string("offload: none, or ") + smaller);
}

}  // namespace plumb
