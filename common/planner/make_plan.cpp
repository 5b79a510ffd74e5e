// Of a schedule that is made for times, the plan on the placement where it is faster.
#include "common/planner/make_plan.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/near_ties.hpp"
#include "common/graph/memory.hpp"
#include "common/planner/plan_on.hpp"
#include "common/planner/slice_tokens.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb {
namespace {

// A plan by the longest path.
struct Weighed {
  Plan plan;
  Seconds step;
  Bytes peak;               // of the fullest rank
  std::vector<Bytes> room;  // that each rank has left
};

Weighed weighed(Plan plan) {
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  const Evaluation evaluation = evaluate(graph);
  Bytes peak;
  std::vector<Bytes> room;
  for (const RankMemory& memory : memory_over_time(graph, evaluation, plan.costs, lowered)) {
    peak = std::max(peak, memory.peak_bytes);
    room.push_back(std::max(plan.cluster.machine.device.memory.value - memory.peak_bytes, Bytes{0}));
  }
  return {.plan = std::move(plan), .step = evaluation.makespan, .peak = peak, .room = std::move(room)};
}

bool fits(const Weighed& plan) { return plan.peak <= plan.plan.cluster.machine.device.memory.value; }

// As the planner compares candidates, but a step that differs by rounding alone is as fast.
bool better(const Weighed& a, const Weighed& b) {
  if (fits(a) != fits(b)) return fits(a);
  if (fits(a) && a.step < b.step * clearly) return true;
  if (fits(a) && b.step < a.step * clearly) return false;
  return a.peak < b.peak;
}

// Whether every rank could keep all microbatches at once.
bool has_room_for_all(const Weighed& found) {
  const PipelineCosts& costs = found.plan.costs;
  for (int rank = 0; rank < found.plan.schedule.ranks; ++rank) {
    Bytes all;
    for (const int stage : stages_of_rank(found.plan.schedule, rank)) {
      all += costs.stages[static_cast<std::size_t>(stage)].kept_bytes * found.plan.schedule.microbatches;
    }
    if (found.room[static_cast<std::size_t>(rank)] < all) return false;
  }
  return true;
}

// The best of what was found and the fixed schedules on the same stages, by their true memory: the search counts
// workspaces and messages more carefully than they need, and B in one needs less than I and W apart.
Weighed not_worse_than_fixed(Weighed best) {
  const ScheduleShape shape{.ranks = best.plan.schedule.ranks,
                            .microbatches = best.plan.schedule.microbatches,
                            .chunks = best.plan.schedule.chunks};
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (entry.uses_times) continue;
    try {
      const Schedule fixed = entry.generate(shape);
      const bool plain = replicas(fixed) == 1 && fixed.update_every == 0 && !evicts(fixed);
      if (!plain || fixed.rank_of_stage != best.plan.schedule.rank_of_stage) continue;
      Plan plan = best.plan;
      plan.schedule.actions = fixed.actions;
      if (recomputes_by_action(plan)) {
        plan.schedule = with_recompute(std::move(plan.schedule));
      }
      Weighed weighed_plan = weighed(std::move(plan));
      if (better(weighed_plan, best)) best = std::move(weighed_plan);
    } catch (const InputError&) {  // the schedule has a requirement that this shape does not meet
    }
  }
  return best;
}

// The limits of the search leave room for the worst workspace and messages at once, which rarely meet. What is left in
// the end is given to it once more, then half of it.
Weighed weighed_on(const Scenario& scenario, const PlanChoice& choice, const PlanEffort& effort,
                   StagePlacement placement) {
  Weighed best = weighed(plan_on(scenario, choice, effort, placement));
  if (choice.schedule.in_flight > 0 || has_room_for_all(best)) return best;
  for (const std::int64_t part : {1, 2}) {
    std::vector<Bytes> room = best.room;
    for (Bytes& bytes : room) bytes = bytes / part;
    Weighed roomier = weighed(plan_on(scenario, choice, effort, placement, room));
    if (!better(roomier, best)) continue;
    best = std::move(roomier);
    break;
  }
  return not_worse_than_fixed(std::move(best));
}

// Slices of equal work, unless equal numbers of tokens make the shorter step: of many short slices, whose matmuls fill
// fewer waves of tiles at some numbers of tokens than at others.
Plan of_better_slices(const Scenario& scenario, const PlanChoice& choice, const PlanEffort& effort) {
  Plan by_work = plan_on(scenario, choice, effort, nullptr);
  if (by_work.schedule.slice_tokens.empty() || !competes_with_equal_slices(scenario, choice.schedule)) return by_work;
  PlanChoice by_tokens = choice;
  by_tokens.schedule.slices_by = SlicesBy::tokens;
  Weighed equal = weighed(plan_on(scenario, by_tokens, effort, nullptr));
  Weighed found = weighed(std::move(by_work));
  return better(equal, found) ? std::move(equal.plan) : std::move(found.plan);
}

}  // namespace

Plan make_plan(const Scenario& scenario, const PlanChoice& choice, const PlanEffort& effort) {
  if (choice.layout || choice.recompute || choice.offload) {
    Scenario settled = scenario;
    settled.layout = choice.layout.value_or(scenario.layout);
    settled.training.recompute = choice.recompute.value_or(scenario.training.recompute);
    settled.training.offload = choice.offload.value_or(scenario.training.offload);
    return make_plan(settled, {choice.microbatch, choice.schedule, choice.split}, effort);
  }
  if (choice.schedule.slices_by == SlicesBy::work) return of_better_slices(scenario, choice, effort);
  if (!is_made_for_times(choice.schedule)) return plan_on(scenario, choice, effort, nullptr);
  const std::vector<StagePlacement> placements = auto_placements(scenario.layout.pipeline, choice.schedule.chunks);
  if (placements.size() == 1) return weighed_on(scenario, choice, effort, placements.front()).plan;
  std::optional<Weighed> best;
  std::exception_ptr problem;
  std::optional<SlowerThanAsked> slower;  // the least of them
  for (const StagePlacement placement : placements) {
    try {
      Weighed plan = weighed_on(scenario, choice, effort, placement);
      if (!best || better(plan, *best)) best = std::move(plan);
    } catch (const InputError&) {  // one placement may fit where another does not
      if (!problem) problem = std::current_exception();
    } catch (const SlowerThanAsked& placed) {
      if (!slower || placed.least < slower->least) slower = placed;
    }
  }
  // A placement that was told to be slower may still be the faster of those that take too long, or the one that fits.
  if (slower && !(best && fits(*best) && best->step <= *effort.at_most)) {
    throw SlowerThanAsked(best && fits(*best) ? std::min(best->step, slower->least) : slower->least);
  }
  if (!best) std::rethrow_exception(problem);
  return std::move(best->plan);
}

}  // namespace plumb
