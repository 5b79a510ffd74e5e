// What of schedules NCCL runs: known without its header, so that a plan is refused before anything is looked for.
#include "common/schedule/reductions.hpp"
#include "exec/transport/nccl.hpp"

namespace plumb::exec {

LaunchPlan require_launchable(const std::string& name, const Schedule& lowered, const PipelineCosts& costs) {
  if (evicts(lowered)) {
    throw InputError(name, "its schedule (" + lowered.name + ") evicts activations, which is not executed over NCCL",
                     "only their sender knows how large they are, and NCCL wants to know on both sides: "
                     "--transport local, or a schedule without evictions");
  }
  return plan_launches(lowered, costs);
}

}  // namespace plumb::exec
