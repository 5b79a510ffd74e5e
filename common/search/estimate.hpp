// What a candidate of a search takes, by the longest path; and how to weigh one through a whole plan.
#pragma once

#include "common/base/units.hpp"
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
  bool operator==(const Estimate&) const = default;
};

// Through the whole plan: make_plan, the graph, the longest path, memory over time. What FastEvaluator is held against,
// and its way for schedules that it does not take. Throws InputError, as make_plan does, for what cannot be built. The
// cluster's ranks are those of the layout.
[[nodiscard]] Estimate weigh_slowly(const Scenario& scenario, const Family& family, const SplitChoice& split);

}  // namespace plumb
