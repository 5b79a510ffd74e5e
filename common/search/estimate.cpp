#include "common/search/estimate.hpp"

#include <utility>

#include "common/graph/memory.hpp"
#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"

namespace plumb {

namespace {

Plan plan_of(const Scenario& scenario, const Family& family, const SplitChoice& split, const PlanEffort& effort) {
  Scenario of_family = settled(scenario, family);
  of_family.cluster.ranks = ranks(family.layout);
  return make_plan(of_family, {.microbatch = family.microbatch, .schedule = family.schedule, .split = split}, effort);
}

}  // namespace

Split refined_slowly(const Scenario& scenario, const Family& family, const Stop* stop) {
  return plan_of(scenario, family, {.method = SplitMethod::dynamic}, {.stop = stop}).split;
}

Estimate weigh_slowly(const Scenario& scenario, const Family& family, const SplitChoice& split,
                      const PlanEffort& effort) {
  Plan plan = plan_of(scenario, family, split, {.thorough = false, .stop = effort.stop, .at_most = effort.at_most});
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  const Evaluation evaluation = evaluate(graph);
  Estimate estimate{.iteration = evaluation.makespan, .split = plan.split};
  const std::vector<RankMemory> memory = memory_over_time(graph, evaluation, plan.costs, lowered);
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    if (memory[rank].peak_bytes <= estimate.peak_bytes) continue;
    estimate.peak_bytes = memory[rank].peak_bytes;
    estimate.fullest_rank = static_cast<int>(rank);
  }
  estimate.fits = estimate.peak_bytes <= scenario.cluster.machine.device.memory.value;
  if (is_made_for_times(family.schedule)) estimate.plan = std::make_shared<const Plan>(std::move(plan));
  return estimate;
}

}  // namespace plumb
