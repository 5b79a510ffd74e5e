// What a plan's ranks keep in their hosts' memory, and whether that has room for it.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"

namespace plumb {

// By rank as fullest_moments of common/graph: microbatches whose activations stand on the host, from F until I or B.
using HeldOnHost = std::vector<std::vector<std::vector<int>>>;
// None where the plan offloads no activations.
[[nodiscard]] HeldOnHost held_on_host(const Plan& plan);

// What a rank of the pipeline keeps on its host, and copies there and back in a step, all its stages together: states
// once, activations and weights in each action.
struct RankOnHost {
  int rank = 0;
  Bytes kept = {};
  Bytes down = {};
  Bytes up = {};
};
[[nodiscard]] std::vector<RankOnHost> on_hosts(const std::vector<ComputeCost>& stages, const Schedule& schedule);
[[nodiscard]] RankOnHost on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule, int rank);
[[nodiscard]] RankOnHost fullest_on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule);

// By how much the rank that keeps most exceeds its part of the host; negative: so much is left. `costs` may be others
// than the plan's own; `held`: held_on_host of the plan, whose schedule need not have actions here.
[[nodiscard]] Bytes too_much_on_host(const Plan& plan, const PipelineCosts& costs, const HeldOnHost& held);

// What else a plan could offload: what that would free of the rank's device at its peak, and keep on its host.
struct OffloadChoice {
  Offload offload;
  Bytes freed;
  Bytes on_host;
};
// Beside what it offloads now: the optimizer's states, then parameters, then activations, each alone; those that it can
// and that free something. Of measured costs no activations: those of blocks are not in a plan.
[[nodiscard]] std::vector<OffloadChoice> offload_choices(const Plan& plan, int rank);

// InputError that names the rank, what it keeps and what there is.
void require_host_memory(const Plan& plan, const PipelineCosts& costs, const HeldOnHost& held);

}  // namespace plumb
