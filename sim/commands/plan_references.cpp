#include "sim/commands/plan_references.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "common/scenario_file/stage_data_choices.hpp"

namespace plumb::sim {

double change_from(const Candidate& reference, const Candidate& candidate) {
  return candidate.iteration / reference.iteration - 1;
}

const Candidate* uniform_of(const Candidate& candidate, const PlanningResult& result) {
  const auto is_uniform = [](const Candidate& other) {
    return other.built && other.choice.split.method == SplitMethod::uniform && other.iteration.value > 0;
  };
  if (has_stage_data(candidate.plan.layout)) {
    const auto plain = std::ranges::find_if(result.candidates, [&](const Candidate& other) {
      return is_uniform(other) && !has_stage_data(other.plan.layout);
    });
    return plain == result.candidates.end() ? nullptr : &*plain;
  }
  if (candidate.choice.split.method == SplitMethod::uniform) return nullptr;
  const auto same = std::ranges::find_if(result.candidates, [&](const Candidate& other) {
    return is_uniform(other) && other.choice.schedule == candidate.choice.schedule &&
           other.choice.microbatch == candidate.choice.microbatch && other.choice.layout == candidate.choice.layout &&
           other.choice.recompute == candidate.choice.recompute && other.choice.offload == candidate.choice.offload;
  });
  return same == result.candidates.end() ? nullptr : &*same;
}

std::string against_uniform(const Candidate& candidate, const PlanningResult& result) {
  const Candidate* uniform = uniform_of(candidate, result);
  if (uniform == nullptr) return "";
  return change_text(change_from(*uniform, candidate)) + (uniform->fits ? "" : " (too large)");
}

const Candidate* fitting_uniform(const PlanningResult& result) {
  const Candidate* fastest = nullptr;
  for (const Candidate& candidate : result.candidates) {
    if (!candidate.fits || candidate.choice.split.method != SplitMethod::uniform) continue;
    if (fastest == nullptr || candidate.iteration < fastest->iteration) fastest = &candidate;
  }
  return fastest;
}

std::string no_stage_data(const Scenario& scenario) {
  if (!scenario.stage_data_pipelines) return "";
  const bool some = std::ranges::any_of(scenario.layouts, has_stage_data);
  return some ? "" : why_no_stage_data(scenario);
}

}  // namespace plumb::sim
