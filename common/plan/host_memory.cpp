#include "common/plan/host_memory.hpp"

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/plan/counted_stages.hpp"

namespace plumb {

void require_offload_possible(const Plan& plan) {
  if (!offloads(plan.training.offload)) return;
  const std::string what = "offload of " + describe(plan.training.offload);
  if (!has_host(plan.cluster.machine)) {
    throw InputError("training",
                     what + " needs a host, of which machine " + plan.cluster.machine.name + " says nothing",
                     "its key host, or offload: none");
  }
  if (plan.schedule.update_every > 0) {
    throw InputError(
        "training",
        what + " cannot be planned yet with a schedule that updates weights within a step: " + plan.schedule.name,
        "schedule: 1f1b, or offload: none");
  }
}

RankOnHost on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule, int rank) {
  RankOnHost all{.rank = rank};
  for (const int stage : stages_of_rank(schedule, rank)) {
    const HostMoves& moves = stages[static_cast<std::size_t>(stage)].host_moves;
    all.kept += moves.kept;
    all.down += moves.down;
    all.up += moves.up;
  }
  return all;
}

RankOnHost fullest_on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule) {
  RankOnHost most;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const RankOnHost own = on_host(stages, schedule, rank);
    if (own.kept > most.kept) most = own;
  }
  return most;
}

std::optional<OffloadChoice> offload_choice(const Plan& plan, int rank) {
  constexpr Offload offload{.optimizer = true};
  if (!has_host(plan.cluster.machine) || plan.schedule.update_every > 0 || offload == plan.training.offload) return {};
  const auto states_of_rank = [&](const std::vector<ComputeCost>& stages) {
    Bytes all;
    for (const int stage : stages_of_rank(plan.schedule, rank)) {
      all += states_held(stages[static_cast<std::size_t>(stage)]);
    }
    return all;
  };
  Plan other = plan;
  other.training.offload = offload;
  const std::vector<ComputeCost> then = counted_stages(other);
  return OffloadChoice{.offload = offload,
                       .freed = states_of_rank(counted_stages(plan)) - states_of_rank(then),
                       .on_host = on_host(then, plan.schedule, rank).kept};
}

Bytes too_much_on_host(const Plan& plan, const PipelineCosts& costs) {
  return fullest_on_host(costs.stages, plan.schedule).kept - plan.cluster.machine.host.memory.value;
}

void require_host_memory(const Plan& plan, const PipelineCosts& costs) {
  const RankOnHost most = fullest_on_host(costs.stages, plan.schedule);
  const Bytes there = plan.cluster.machine.host.memory.value;
  if (most.kept <= there) return;
  throw InputError("training",
                   "offload of " + describe(plan.training.offload) + ": rank " + std::to_string(most.rank) + " keeps " +
                       to_text(most.kept) + " on its host, of which it may use " + to_text(there) + ", " +
                       to_text(most.kept - there) + " too much",
                   "offload: none, or more ranks that share the states out (data: {sharding: zero1})");
}

}  // namespace plumb
