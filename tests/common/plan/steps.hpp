// Steps of plans by the longest path, for brute force over splits.
#pragma once

#include <algorithm>
#include <vector>

#include "common/graph/evaluate.hpp"
#include "common/graph/memory.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/planner/planner.hpp"

namespace plumb::testing {

inline Bytes peak_of(const Timeline& timeline) {
  Bytes peak;
  for (const RankSummary& rank : timeline.ranks) peak = std::max(peak, rank.peak_bytes);
  return peak;
}

struct Step {
  Split split;
  Seconds time;
  Bytes peak;  // of the fullest rank
};

inline Step step_of(const Plan& plan) {
  const Timeline timeline = predict_by_path(plan);
  return {.split = plan.split, .time = timeline.steps.front().duration, .peak = peak_of(timeline)};
}

// Of each rank, by the longest path.
inline std::vector<RankMemory> memory_by_path(const Plan& plan) {
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  return memory_over_time(graph, evaluate(graph), plan.costs, lowered);
}

inline SplitChoice counts_of(const Split& split) { return {.method = SplitMethod::counts, .counts = split.layers}; }

}  // namespace plumb::testing
