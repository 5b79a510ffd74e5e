// From a scenario and one choice among its candidates to a plan.
#pragma once

#include <exception>
#include <optional>

#include "common/plan/plan.hpp"

namespace plumb {

// How much is tried for one plan.
struct PlanEffort {
  bool thorough = true;        // false: as a search weighs its candidates, in a small part of the time; never better
  const Stop* stop = nullptr;  // tells long searches to end: they throw Stopped
  // A schedule for a split's times is not searched where every such schedule that fits takes more: SlowerThanAsked.
  std::optional<Seconds> at_most = {};
};
struct SlowerThanAsked : std::exception {
  explicit SlowerThanAsked(Seconds bound) : least(bound) {}
  [[nodiscard]] const char* what() const noexcept override { return "the plan is slower than asked for"; }
  Seconds least;  // that the plan takes: more than what was asked for
};

// The dynamic split keeps every rank within its memory where such a split is found; otherwise it is the one without a
// limit. By the longest path it is no slower than the uniform split, and thoroughly not than the cuts of the published
// planners either, as far as these fit; a schedule that is made for times is made for the split with the least slowest
// stage, of several stages per rank for the shortest path of the same schedule for equal stages.
[[nodiscard]] Plan make_plan(const Scenario& scenario, const PlanChoice& choice, const PlanEffort& effort = {});

}  // namespace plumb
