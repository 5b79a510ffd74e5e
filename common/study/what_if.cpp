#include "common/study/what_if.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/random.hpp"
#include "common/base/text.hpp"
#include "common/graph/memory.hpp"

namespace plumb {
namespace {

bool holds(const Straggler& straggler, const Node& node, const PipelineCosts& costs) {
  const auto is = [](const auto& wanted, auto found) { return !wanted || *wanted == found; };
  return occupies_rank(node) && is(straggler.rank, static_cast<int>(node.rank)) &&
         is(straggler.machine, machine_of(node.rank, std::max(1, costs.ranks_per_machine))) &&
         is(straggler.stage, static_cast<int>(node.action.stage)) && is(straggler.action, node.action.kind);
}

std::string describe(const Disturbance& disturbance) {
  std::string rank = "rank " + std::to_string(disturbance.rank);
  switch (disturbance.what) {
    case Disturbed::device:
      return rank;
    case Disturbed::ports:
      return "the links of " + rank;
    case Disturbed::outside_ports:
      return "the links of " + rank + " to other machines";
    case Disturbed::way:
      return "the link between ranks " + std::to_string(disturbance.rank) + " and " + std::to_string(disturbance.peer);
    case Disturbed::uplink:
      return "the uplink of the switch of " + rank;
    case Disturbed::leaf:
      return "the uplink of the leaf of " + rank;
    case Disturbed::reduction:
      return "the reduction of " + rank;
  }
  return rank;
}

// What never comes back, the earliest first.
std::vector<Disturbance> failures_of(const std::vector<Disturbance>& disturbances) {
  std::vector<Disturbance> failures;
  for (const Disturbance& disturbance : disturbances) {
    const bool of_known_rank =
        std::ranges::any_of(failures, [&](const Disturbance& known) { return known.rank == disturbance.rank; });
    if (disturbance.factor == 0 && std::isinf(disturbance.until.value) && !of_known_rank) {
      failures.push_back(disturbance);
    }
  }
  std::ranges::stable_sort(failures, {}, &Disturbance::from);
  return failures;
}

std::string describe(const std::vector<Disturbance>& failures) {
  std::string text;
  for (const Disturbance& failure : failures) {
    text += (text.empty() ? "" : ", ") + describe(failure) + " failed at " + to_text(failure.from);
  }
  return text;
}

// A step that ends before a date bears nothing of what begins then, which its time does not tell.
std::string describe_unmet(const std::vector<Disturbance>& disturbances, Seconds step) {
  std::set<Seconds> dates;
  for (const Disturbance& disturbance : disturbances) {
    if (disturbance.from >= step) dates.insert(disturbance.from);
  }
  if (dates.empty()) return "";
  return "nothing met of what begins at " + to_text(*dates.begin()) + (dates.size() > 1 ? " and later" : "") +
         ": the step has ended by then";
}

Bytes fullest(const std::vector<RankMemory>& ranks) {
  return std::ranges::max(ranks, {}, &RankMemory::peak_bytes).peak_bytes;
}

}  // namespace

ScheduleGraph graph_of(const WhatIf& variant) {
  ScheduleGraph graph = build_graph(lowered_schedule(variant.plan), variant.plan.costs);
  for (Node& node : graph.nodes) {
    for (const Straggler& straggler : variant.stragglers) {
      if (holds(straggler, node, variant.plan.costs)) node.duration = node.duration * straggler.slower;
    }
    if (!variant.jitter || !occupies_rank(node)) continue;
    const std::string key = std::to_string(node.rank) + " " + to_string(node.action);
    node.duration = node.duration * lognormal_factor(normal_draw(variant.jitter->seed, key, 0), variant.jitter->spread);
  }
  return graph;
}

BoundingRank bounding_rank(const ScheduleGraph& graph, const Evaluation& evaluation) {
  std::vector<Seconds> busy(static_cast<std::size_t>(graph.ranks));
  for (const NodeId id : critical_path(graph, evaluation)) {
    const Node& node = graph.nodes[id];
    if (occupies_rank(node)) busy[static_cast<std::size_t>(node.rank)] += evaluation.end[id] - evaluation.start[id];
  }
  // Sums of the same times in another order differ in their last bits.
  const Seconds most = *std::ranges::max_element(busy);
  const auto first = std::ranges::find_if(busy, [&](Seconds time) { return time >= most * (1 - 1e-9); });
  return {.rank = static_cast<int>(first - busy.begin()),
          .fraction = evaluation.makespan.value > 0 ? *first / evaluation.makespan : 0};
}

WhatIfOutcome predict_what_if(const WhatIf& variant, const StepEngine& engine) {
  const ScheduleGraph graph = graph_of(variant);
  const PipelineCosts& costs = variant.plan.costs;
  const StepOutcome outcome = engine(graph, costs, variant.disturbances);
  if (outcome.unfinished.empty()) {
    return {.iteration = outcome.evaluation.makespan,
            .bubble_makespan_fraction = bubbles(graph, outcome.evaluation).makespan_fraction,
            .bounding = bounding_rank(graph, outcome.evaluation),
            .peak = fullest(memory_over_time(graph, outcome.evaluation, costs, lowered_schedule(variant.plan))),
            .unmet = describe_unmet(variant.disturbances, outcome.evaluation.makespan)};
  }
  const std::size_t count = outcome.unfinished.size();
  const Node& first = graph.nodes[outcome.unfinished.front()];
  const std::vector<Disturbance> causes = failures_of(variant.disturbances);
  return {.never_ran = count,
          .why = {.causes = causes, .rank = first.rank, .action = first.action},
          .failure = describe(causes) + ": " + std::to_string(count) +
                     (count == 1 ? " action never ended: " : " actions never ended, the first: ") + "rank " +
                     std::to_string(first.rank) + ": " + to_string(first.action)};
}

}  // namespace plumb
