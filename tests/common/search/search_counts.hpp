// What the counts of every search must add up to.
#pragma once

#include "common/search/search.hpp"
#include "tests/catch.hpp"

namespace plumb::testing {

inline void check_counts(const SearchResult& result, const SearchSpace& space) {
  const PlanningResult& planning = result.planning;
  CHECK(result.candidates == space.candidates());
  CHECK(planning.pruned + planning.unproven + planning.bounded + planning.evaluated + planning.left ==
        result.candidates);
  std::int64_t explained = 0;
  for (const LeftOut& group : result.explanation) {
    if (group.why != LeftOutWhy::does_not_fit) explained += group.candidates;
  }
  CHECK(explained == planning.pruned + planning.unproven + planning.bounded);
}

}  // namespace plumb::testing
