#include "exec/host/enough_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/host/available_memory.hpp"
#include "common/base/text.hpp"
#include "common/graph/memory.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/host_memory.hpp"
#include "common/schedule/weight_versions.hpp"

namespace plumb::exec {

void require_memory(const MemoryNeed& need, const MemoryThere& there) {
  if (!there.bytes || need.bytes <= *there.bytes) return;
  throw InputError(need.where,
                   fmt::format("made for {}: {} {} of memory, and {}, on which it runs, has {}", need.made_for,
                               need.what, to_text(need.bytes), there.where, to_text(*there.bytes)),
                   need.hint);
}

std::string machine_text(const Machine& machine) {
  if (machine.device.name.empty() || machine.device.name == machine.name) {
    return machine.name.empty() ? "another machine" : machine.name;
  }
  return machine.name + " with " + machine.device.name;
}

MemoryThere memory_of_host(const HostIdentity& host) {
  return {.where = fmt::format("this host ({})", host.name), .bytes = available_memory()};
}

Bytes memory_of_ranks(const std::vector<const Plan*>& plans, const std::vector<int>& ranks) {
  Bytes states;
  Bytes beside;
  for (const Plan* plan : plans) {
    const Schedule lowered = lowered_schedule(*plan);
    const ScheduleGraph graph = build_graph(lowered, plan->costs);
    const std::vector<RankMemory> memory = memory_over_time(graph, evaluate(graph), plan->costs, lowered);
    Bytes beside_of_plan;
    for (const int rank : ranks) {
      const int place = lane_of(plan->layout, rank).pipeline_rank;
      const RankMemory& of = memory.at(static_cast<std::size_t>(place));
      const Bytes own = of.parameter_bytes + of.gradient_bytes + of.optimizer_bytes;
      states += own + on_host(plan->costs.stages, plan->schedule, place).kept;
      beside_of_plan += of.peak_bytes - own;
    }
    beside = std::max(beside, beside_of_plan);
  }
  return states + beside;
}

Bytes states_of_ranks(const Plan& plan, const std::vector<int>& ranks) {
  const std::vector<int> versions = weight_versions_kept(plan.schedule);
  Bytes states;
  for (const int rank : ranks) {
    for (const int stage : stages_of_rank(plan.schedule, lane_of(plan.layout, rank).pipeline_rank)) {
      const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
      const Bytes buffers = plan.training.offload.optimizer ? cost.host_moves.down : Bytes{};  // of gradients
      states += cost.parameter_bytes * versions[static_cast<std::size_t>(stage)] + cost.optimizer_bytes +
                (cost.host_moves.kept - buffers);
    }
  }
  return states;
}

}  // namespace plumb::exec
