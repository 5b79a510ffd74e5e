#include "exec/commands/prepared_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/schedule/validate/validate.hpp"
#include "exec/commands/executed_layout.hpp"
#include "exec/commands/faults.hpp"
#include "exec/host/host.hpp"

namespace plumb::exec {
namespace {

// Whether the names are known and go together.
void require_known(const SessionOptions& options) {
  require_kind_of_device(options.device);
  const std::vector<std::string> transports{"local", "gloo", "nccl"};
  if (std::find(transports.begin(), transports.end(), options.transport) == transports.end()) {
    throw InputError("--transport", "there is no transport '" + options.transport + "'",
                     did_you_mean(options.transport, transports));
  }
  if (options.device == "cpu") {
    if (options.transport != "nccl") return;
    throw InputError("--transport", "'nccl' moves the memory of GPUs, and --device is cpu",
                     "--device cuda, or --transport local or gloo");
  }
  if (options.emulate) {
    throw InputError("--emulate", "waits on the host, and has nothing for a device to do", "leave --device cuda out");
  }
  if (options.transport == "gloo") {
    throw InputError("--transport", "'gloo' moves the host's memory alone, not a device's",
                     "--transport nccl, or local: the ranks share one device");
  }
  if (options.check && !options.stage.deterministic) {
    throw InputError("--check", "compares bits, which on a device depend on timing unless it is told otherwise",
                     "add --deterministic");
  }
}

void require_supported(const Plan& plan, const SessionOptions& options) {
  require_known(options);
  require_executed_layout(plan, options);
  if (plan.training.recompute.mode == RecomputeMode::full && !recomputes_by_action(plan)) {
    throw InputError(plan.name,
                     "its software (" + plan.software.name + ") redoes layer by layer, which is not executed",
                     "plan without 'software', or with software: plumb");
  }
  if (options.emulate && options.gathers_weights) {
    throw InputError("--export", "there are no weights when compute is emulated", "leave out --emulate");
  }
  if (options.emulate && options.stage.weights) {
    throw InputError("--weights", "nothing is computed with them when compute is emulated", "leave out --emulate");
  }
  if (options.emulate && options.check) {
    throw InputError("--check", "has nothing to compare when compute is emulated", "leave out --emulate");
  }
}

PreparedPlan prepare(Plan plan, const SessionOptions& options) {
  require_supported(plan, options);
  if (options.emulate_bytes) {
    plan.costs.boundary_bytes = {*options.emulate_bytes};
    plan.costs.slice_tokens.clear();  // of every message
    plan.costs.slice_gathering.clear();
  }
  Schedule lowered = lowered_schedule(plan);
  if (!options.fault.empty()) lowered = with_fault(std::move(lowered), options.fault);
  if (!options.force_unchecked) require_valid(lowered);
  LaunchPlan launches;
  if (options.transport == "nccl") launches = plan_launches(lowered, plan.costs);
  std::vector<ReceiveSlots> slots;
  // A schedule with a fault in it, or one that nobody checked, may have no evaluation: it may never end.
  const bool ends = options.fault.empty() && !options.force_unchecked;
  if (options.device != "cpu" && ends) slots = plan_receive_arenas(lowered, plan.costs, launches);
  return {.plan = std::move(plan),
          .lowered = std::move(lowered),
          .launches = std::move(launches),
          .slots = std::move(slots)};
}

}  // namespace

std::vector<PreparedPlan> prepare_all(std::vector<Plan> plans, const SessionOptions& options) {
  std::vector<PreparedPlan> prepared;
  for (Plan& plan : plans) {
    prepared.push_back(prepare(std::move(plan), options));
    const int ranks = ranks_of(prepared.back());
    if (ranks == ranks_of(prepared.front())) continue;
    throw InputError(prepared.back().plan.name,
                     fmt::format("has {} ranks, but {} has {}: plans that alternate in one run need the same", ranks,
                                 prepared.front().plan.name, ranks_of(prepared.front())));
  }
  return prepared;
}

}  // namespace plumb::exec
