// What a candidate of a search takes, by the longest path; and how to weigh one through a whole plan.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/base/units.hpp"
#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/search/family.hpp"
#include "common/split/split.hpp"

namespace plumb {

struct Estimate {
  Seconds iteration = {};  // one step: the length of the longest path
  Bytes peak_bytes = {};   // of the fullest rank
  int fullest_rank = 0;    // the first of equal ones
  Split split = {};        // that the choice came to
  bool fits = false;       // peak_bytes within the device's memory
  bool exact = true;       // false: peak_bytes may be above the true peak (never below); `fits` is right all the same
  // Of a schedule that is made for times: to make the plan again takes seconds.
  std::shared_ptr<const Plan> plan = {};
};

// Through the whole plan: make_plan, the graph, the longest path, memory over time. What FastEvaluator is held against,
// and its way for schedules that it does not take. Throws InputError, as make_plan does, for what cannot be built. The
// cluster's ranks are those of the layout. Splits are not searched thoroughly, whatever `effort` says: a
// plan may come to a shorter step.
[[nodiscard]] Estimate weigh_slowly(const Scenario& scenario, const Family& family, const SplitChoice& split,
                                    const PlanEffort& effort = {});

// The choice's candidate, built with the split that it was weighed with.
[[nodiscard]] Candidate build_as_weighed(const Scenario& scenario, const PlanChoice& choice, const Split& split,
                                         const PlanEffort& effort = {});

// Of each candidate the place of the first that has the same plan: a family's dynamic split may be its uniform one.
[[nodiscard]] std::vector<std::size_t> first_with_same_plan(const std::vector<Candidate>& candidates);

// The family's dynamic split as of a plan of its own.
[[nodiscard]] Split refined_slowly(const Scenario& scenario, const Family& family, const Stop* stop = nullptr);

}  // namespace plumb
