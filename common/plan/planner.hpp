// Weighs a scenario's candidates and picks the fastest that fits in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/graph/evaluate.hpp"
#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Predicts a plan's timeline; the two implementations are the critical path and SimGrid.
using Evaluator = std::function<Timeline(const Plan&)>;

// By the longest path through the plan's graph: exact where nothing contends.
[[nodiscard]] Timeline predict_by_path(const Plan& plan);

// From when each node starts and ends to a timeline with rank summaries; shared by both engines.
[[nodiscard]] Timeline predicted_timeline(const Plan& plan, const Schedule& lowered, const ScheduleGraph& graph,
                                          const Evaluation& evaluation, const std::string& engine);

struct Candidate {
  PlanChoice choice;
  Plan plan;
  Seconds iteration;
  Bytes peak_bytes;   // of the fullest rank
  bool fits = false;
  std::string reason; // why it cannot be built or does not fit; empty otherwise
};

struct PlanningResult {
  std::vector<Candidate> candidates;  // fitting ones by time, then the others; ties in order of the scenario
  int pruned = 0;
  int bounded = 0;
  int evaluated = 0;
  int simulated = 0;
};

// A uniform split is always among the candidates. `progress(done, total)` is called after each.
[[nodiscard]] PlanningResult plan_scenario(const Scenario& scenario, const Evaluator& evaluator,
                                           const std::function<void(int, int)>& progress = {});

// Throws InputError that says by how much the best candidate exceeds memory and what would fit.
[[nodiscard]] const Candidate& best_fitting(const PlanningResult& result, const Scenario& scenario);

}  // namespace plumb
