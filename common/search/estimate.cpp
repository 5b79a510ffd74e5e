#include "common/search/estimate.hpp"

#include <utility>

#include "common/graph/memory.hpp"
#include "common/plan/plan.hpp"

namespace plumb {

Estimate weigh_slowly(const Scenario& scenario, const Family& family, const SplitChoice& split) {
  Scenario of_family = settled(scenario, family);
  of_family.cluster.ranks = ranks(family.layout);
  Plan plan = make_plan(of_family, {.microbatch = family.microbatch, .schedule = family.schedule, .split = split});
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  const Evaluation evaluation = evaluate(graph);
  Estimate estimate{.iteration = evaluation.makespan, .split = std::move(plan.split)};
  const std::vector<RankMemory> memory = memory_over_time(graph, evaluation, plan.costs, lowered);
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    if (memory[rank].peak_bytes <= estimate.peak_bytes) continue;
    estimate.peak_bytes = memory[rank].peak_bytes;
    estimate.fullest_rank = static_cast<int>(rank);
  }
  estimate.fits = estimate.peak_bytes <= scenario.cluster.machine.device.memory.value;
  return estimate;
}

}  // namespace plumb
