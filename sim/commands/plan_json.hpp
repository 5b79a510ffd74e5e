// Options of `plumb plan`, and its JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/document/json.hpp"
#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "sim/commands/planning.hpp"
#include "sim/commands/training_run.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {

struct PlanOptions {
  std::string scenario;
  std::string output;
  std::string engine = engine_names().front();
  ScenarioOverrides overrides;
  PlanningOptions planning;
  std::vector<std::string> baselines;
  double tokens = 0;  // tokens of the whole training; 0 if not given
  bool explain = false;
  bool json = false;
};

// A published planner's cuts on the best plan's layout and schedule, or with replicas of its own choice.
struct BaselineRow {
  std::string name;
  Candidate candidate;
};

inline Layout layout_of(const PlanChoice& choice, const Scenario& scenario) {
  return choice.layout.value_or(scenario.layout);
}
inline Recompute recompute_of(const PlanChoice& choice, const Scenario& scenario) {
  return choice.recompute.value_or(scenario.training.recompute);
}

inline Offload offload_of(const PlanChoice& choice, const Scenario& scenario) {
  return choice.offload.value_or(scenario.training.offload);
}

// Tokens per second and MFU of a candidate that was built.
[[nodiscard]] double tokens_per_s(const Candidate& candidate);
[[nodiscard]] double utilisation(const Candidate& candidate);

// A candidate that was built, over this many tokens.
[[nodiscard]] TrainingRun training_run(const Candidate& candidate, double tokens);

inline bool has_reason(const LeftOut& group) {
  return group.why == LeftOutWhy::cannot_be_built || group.why == LeftOutWhy::unproven;
}

[[nodiscard]] Json to_json(const Planned& planned, const Candidate& chosen, const std::vector<BaselineRow>& baselines,
                           const std::optional<BaselineRow>& habit, const Scenario& scenario,
                           const PlanOptions& options);

}  // namespace plumb::sim
