// Problems for ZB auto in whole units, and an account of its schedules that shares no code with it.
#pragma once

#include <random>
#include <vector>

#include "common/schedule/zb_auto/zb_auto.hpp"
#include "tests/common/schedule/naive_pipeline.hpp"

namespace plumb {

struct ProblemShape {
  int ranks = 1;
  int microbatches = 1;
  std::vector<int> rank_of_stage;
  int hop = 0;  // between all ranks
  int largest = 9;
};

// Every stage its own whole times up to `largest`, some of them 0, and its own bytes.
[[nodiscard]] AutoProblem random_problem(const ProblemShape& shape, std::mt19937& random);

// All stages alike.
[[nodiscard]] AutoProblem even_problem(const ProblemShape& shape, const StageLoad& load);

// Bytes of one microbatch on all stages of a rank, at their peak.
[[nodiscard]] Bytes share_of(const AutoProblem& problem, int rank);

// The most that each rank keeps, counted action by action in the order of its list. B is I and W at once.
[[nodiscard]] std::vector<Bytes> kept_at_most(const AutoProblem& problem, const Schedule& schedule);
[[nodiscard]] bool within_limits(const AutoProblem& problem, const Schedule& schedule);

[[nodiscard]] NaiveResult naive_run(const AutoProblem& problem, const Schedule& schedule);

}  // namespace plumb
