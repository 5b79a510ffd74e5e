// The best of a search held to the best of all candidates, which others predict one by one.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/catch.hpp"
#include "tests/common/search/random_scenarios.hpp"
#include "tests/common/search/search_counts.hpp"

namespace plumb::testing {

// All that was built, and of what fits the best.
struct BestOfAll {
  Candidate best = {};
  std::vector<Bytes> peaks = {};

  void take(const Candidate& candidate) {
    peaks.push_back(candidate.peak_bytes);
    if (candidate.fits && (!best.built || stands_before(candidate, best))) best = candidate;
  }
};

// So much memory that a sixth, or half, of them have enough.
inline Bytes scarce_memory(const BestOfAll& all, unsigned seed) {
  std::vector<Bytes> peaks = all.peaks;
  std::ranges::sort(peaks);
  return peaks[peaks.size() / (seed % 4 < 2 ? 6 : 2)];
}

// What searches by one thread and by two find; `excluded` counts what they leave out for its memory.
inline Candidate require_best(const Scenario& scenario, const BestOfAll& all, int& excluded) {
  REQUIRE(all.best.built);
  const SearchSpace space(scenario);
  Candidate best;
  for (const int jobs : {2, 1}) {
    const SearchResult found = search(space, fast_weigher, predict_by_path, {.top = 1, .jobs = jobs});
    check_counts(found, space);
    CHECK(found.finished);
    best = best_fitting(found.planning, scenario);
    CHECK(best.iteration == all.best.iteration);
    CHECK(best.peak_bytes == all.best.peak_bytes);
    for (const LeftOut& group : found.explanation) {
      excluded += group.why == LeftOutWhy::memory_bound || group.why == LeftOutWhy::does_not_fit ? 1 : 0;
    }
  }
  return best;
}

}  // namespace plumb::testing
