#include "common/search/estimate.hpp"

#include <algorithm>
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

Candidate build_as_weighed(const Scenario& scenario, const PlanChoice& choice, const Split& split,
                           const PlanEffort& effort) {
  PlanChoice counted = choice;
  counted.split = {.method = SplitMethod::counts, .counts = split.layers};
  Candidate candidate = build_candidate(scenario, counted, effort);
  candidate.choice = choice;
  candidate.own = true;
  if (candidate.built) candidate.plan.split_method = name_of(choice.split.method);
  return candidate;
}

std::vector<std::size_t> first_with_same_plan(const std::vector<Candidate>& candidates) {
  std::vector<std::size_t> first;
  for (const Candidate& candidate : candidates) {
    const auto same = [&](const Candidate& other) {
      PlanChoice choice = other.choice;
      choice.split = candidate.choice.split;
      return choice == candidate.choice && other.plan.split == candidate.plan.split &&
             other.plan.schedule == candidate.plan.schedule;
    };
    first.push_back(static_cast<std::size_t>(std::ranges::find_if(candidates, same) - candidates.begin()));
  }
  return first;
}

Split refined_slowly(const Scenario& scenario, const Family& family, const Stop* stop) {
  return plan_of(scenario, family, {.method = SplitMethod::dynamic}, {.stop = stop}).split;
}

Estimate weigh_slowly(const Scenario& scenario, const Family& family, const SplitChoice& split,
                      const PlanEffort& effort) {
  const StopOnThread watch(effort.stop);
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
