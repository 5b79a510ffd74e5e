#include "tests/common/schedule/zb_auto/auto_problems.hpp"

#include <algorithm>

namespace plumb {
namespace {

const StageLoad& load_of(const AutoProblem& problem, const Action& action) {
  return problem.stages[static_cast<std::size_t>(action.stage)];
}

Bytes change(const AutoProblem& problem, const Action& action) {
  const StageLoad& load = load_of(problem, action);
  switch (action.kind) {
    case ActionKind::forward:
      return load.kept;
    case ActionKind::input_gradient:
      return load.kept_for_weight - load.kept;
    case ActionKind::weight_gradient:
      return -load.kept_for_weight;
    default:
      return -load.kept;
  }
}

AutoProblem empty_problem(const ProblemShape& shape) {
  AutoProblem problem{.ranks = shape.ranks,
                      .microbatches = shape.microbatches,
                      .rank_of_stage = shape.rank_of_stage,
                      .stages = {},
                      .hop = {},
                      .limit = {}};
  problem.hop.assign(shape.rank_of_stage.size() - 1, Seconds{static_cast<double>(shape.hop)});
  return problem;
}

}  // namespace

AutoProblem random_problem(const ProblemShape& shape, std::mt19937& random) {
  AutoProblem problem = empty_problem(shape);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  const auto seconds = [&] { return Seconds{static_cast<double>(up_to(shape.largest))}; };
  for (std::size_t s = 0; s < shape.rank_of_stage.size(); ++s) {
    const int kept = 1 + up_to(9);
    problem.stages.push_back({.forward = seconds(),
                              .input_gradient = seconds(),
                              .weight_gradient = seconds(),
                              .kept = Bytes{kept},
                              .kept_for_weight = Bytes{up_to(kept)}});
  }
  return problem;
}

AutoProblem even_problem(const ProblemShape& shape, const StageLoad& load) {
  AutoProblem problem = empty_problem(shape);
  problem.stages.assign(shape.rank_of_stage.size(), load);
  return problem;
}

Bytes share_of(const AutoProblem& problem, int rank) {
  Bytes share;
  for (std::size_t s = 0; s < problem.stages.size(); ++s) {
    if (problem.rank_of_stage[s] == rank) share += problem.stages[s].kept;
  }
  return share;
}

std::vector<Bytes> kept_at_most(const AutoProblem& problem, const Schedule& schedule) {
  std::vector<Bytes> peaks;
  for (const auto& list : schedule.actions) {
    Bytes kept, peak;
    for (const Action& action : list) {
      kept += change(problem, action);
      peak = std::max(peak, kept);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

bool within_limits(const AutoProblem& problem, const Schedule& schedule) {
  const std::vector<Bytes> peaks = kept_at_most(problem, schedule);
  for (std::size_t r = 0; r < problem.limit.size(); ++r) {
    if (peaks[r] > problem.limit[r]) return false;
  }
  return true;
}

NaiveResult naive_run(const AutoProblem& problem, const Schedule& schedule) {
  NaiveTimes times;
  for (const StageLoad& load : problem.stages) {
    times.forward.push_back(static_cast<int>(load.forward.value));
    times.input_gradient.push_back(static_cast<int>(load.input_gradient.value));
    times.weight_gradient.push_back(static_cast<int>(load.weight_gradient.value));
  }
  if (!problem.hop.empty()) times.hop = static_cast<int>(problem.hop.front().value);
  return naive_run(schedule, times);
}

}  // namespace plumb
