// Of a schedule that is made for times, the plan on the placement where it is faster.
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/graph/memory.hpp"
#include "common/plan/plan_on.hpp"
#include "common/schedule/registry.hpp"

namespace plumb {
namespace {

// A plan by the longest path.
struct Weighed {
  Plan plan;
  Seconds step;
  Bytes peak;  // of the fullest rank
};

Weighed weighed(Plan plan) {
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  const Evaluation evaluation = evaluate(graph);
  Bytes peak;
  for (const RankMemory& memory : memory_over_time(graph, evaluation, plan.costs, lowered)) {
    peak = std::max(peak, memory.peak_bytes);
  }
  return {.plan = std::move(plan), .step = evaluation.makespan, .peak = peak};
}

// As the planner compares candidates, but a step that differs by rounding alone is as fast.
bool better(const Weighed& a, const Weighed& b) {
  const Bytes memory = a.plan.cluster.machine.device.memory.value;
  const bool fits = a.peak <= memory;
  if (fits != (b.peak <= memory)) return fits;
  constexpr double clearly = 1 - 1e-9;
  if (fits && a.step < b.step * clearly) return true;
  if (fits && b.step < a.step * clearly) return false;
  return a.peak < b.peak;
}

}  // namespace

Plan make_plan(const Scenario& scenario, const PlanChoice& choice) {
  if (choice.schedule.given || !find_schedule(choice.schedule.name).uses_times) {
    return plan_on(scenario, choice, nullptr);
  }
  const std::vector<Placement> placements = auto_placements(scenario.layout.pipeline, choice.schedule.chunks);
  if (placements.size() == 1) return plan_on(scenario, choice, placements.front());
  std::optional<Weighed> best;
  std::exception_ptr problem;
  for (const Placement placement : placements) {
    try {
      Weighed plan = weighed(plan_on(scenario, choice, placement));
      if (!best || better(plan, *best)) best = std::move(plan);
    } catch (const InputError&) {  // one placement may fit where another does not
      if (!problem) problem = std::current_exception();
    }
  }
  if (!best) std::rethrow_exception(problem);
  return std::move(best->plan);
}

}  // namespace plumb
