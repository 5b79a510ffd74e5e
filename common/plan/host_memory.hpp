// What a plan's ranks keep in their hosts' memory, and whether that has room for it.
#pragma once

#include <optional>

#include "common/plan/plan.hpp"

namespace plumb {

// InputError where something is offloaded and the plan's machine has no host or its schedule updates weights within a
// step, whose versions stand on the device.
void require_offload_possible(const Plan& plan);

// What a rank of the pipeline keeps on its host, and copies there and back once a step, all its stages together.
struct RankOnHost {
  int rank = 0;
  Bytes kept = {};
  Bytes down = {};
  Bytes up = {};
};
[[nodiscard]] RankOnHost on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule, int rank);
[[nodiscard]] RankOnHost fullest_on_host(const std::vector<ComputeCost>& stages, const Schedule& schedule);

// By how much the rank that keeps most exceeds its part of the host; negative: so much is left. `costs` may be others
// than the plan's own.
[[nodiscard]] Bytes too_much_on_host(const Plan& plan, const PipelineCosts& costs);

// What else a plan could offload: what that would free of the rank's device, and keep on its host.
struct OffloadChoice {
  Offload offload;
  Bytes freed;
  Bytes on_host;
};
// None: nothing, for want of a host or with a schedule that updates weights within a step, or it does already.
[[nodiscard]] std::optional<OffloadChoice> offload_choice(const Plan& plan, int rank);

// InputError that names the rank, what it keeps and what there is.
void require_host_memory(const Plan& plan, const PipelineCosts& costs);

}  // namespace plumb
