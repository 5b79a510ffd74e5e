// Weighs very many candidates of one scenario: what the longest path through a whole plan says, from cached parts.
#pragma once

#include <memory>
#include <optional>

#include "common/planner/make_plan.hpp"
#include "common/search/estimate.hpp"

namespace plumb {

// One for each thread. What it says does not depend on what it was asked before. Throws InputError wherever make_plan
// does for the family.
class FastEvaluator {
 public:
  // `stop`: looked at within long searches for a split; weigh then throws Stopped. Must outlive the evaluator.
  explicit FastEvaluator(const Scenario& scenario, const Stop* stop = nullptr);
  ~FastEvaluator();
  FastEvaluator(FastEvaluator&&) noexcept;
  FastEvaluator& operator=(FastEvaluator&&) noexcept;

  // No candidate of the family takes less, whatever its split. Both are cheap: neither schedule nor split is made.
  [[nodiscard]] Seconds time_bound(const Family& family);
  [[nodiscard]] Bytes memory_bound(const Family& family);  // of the fullest rank

  // As weigh_slowly: the same split, the step's time within 1e-9 of it, the peak as Estimate says. Throws
  // SlowerThanAsked where it takes more than `at_most`, if that is sure before a schedule is made for the stages'
  // times.
  [[nodiscard]] Estimate weigh(const Family& family, const SplitChoice& split, std::optional<Seconds> at_most = {});

  // The family's dynamic split, searched as thoroughly as for a plan of its own.
  [[nodiscard]] Split refined(const Family& family);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb
