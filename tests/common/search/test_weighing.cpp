// What a search shows of itself while it weighs: candidates that are disposed of, which never become fewer.
#include "common/search/weighing.hpp"

#include <algorithm>

#include "common/planner/make_plan.hpp"
#include "common/split/coupled.hpp"
#include "tests/catch.hpp"
#include "tests/common/search/random_scenarios.hpp"
#include "tests/common/search/search_counts.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// By one thread; `told` gets what was shown, in order.
SearchResult watched_search(const Scenario& scenario, const MakeWeigher& make, std::vector<std::int64_t>& told) {
  const SearchSpace space(scenario);
  SearchOptions options{.top = 1};
  options.progress = [&](const SearchProgress& progress) {
    CHECK(progress.total == space.candidates());
    told.push_back(progress.done);
  };
  SearchResult found = search(space, make, predict_by_path, options);
  check_counts(found, space);
  return found;
}

}  // namespace

TEST_CASE("candidates that are put off are not counted until they are weighed") {
  int put_off = 0;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const Scenario scenario = read_text(random_scenario(seed));
    const MakeWeigher make = [&](const Scenario& of) {
      Weigher weigher = slow_weigher(of);
      weigher.weigh = [=, &of, &put_off](const Family& family, const SplitChoice& split,
                                         std::optional<Seconds> at_most) {
        const Estimate estimate = weigh_slowly(of, family, split);
        if (at_most && estimate.iteration > *at_most) {
          ++put_off;
          throw SlowerThanAsked{estimate.iteration};
        }
        return estimate;
      };
      return weigher;
    };
    std::vector<std::int64_t> told;
    const SearchResult found = watched_search(scenario, make, told);
    REQUIRE_FALSE(told.empty());
    CHECK(std::ranges::is_sorted(told));
    CHECK(told.back() <= found.planning.pruned + found.planning.unproven + found.planning.evaluated);
  }
  CHECK(put_off > 0);
}

// What is dropped by a bound is so at once, at the end: until then it is neither done nor left to weigh.
TEST_CASE("a search tells what it has weighed, what its bounds leave out and what is left, and nothing is at the end") {
  int beyond = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const Scenario scenario = read_text(random_scenario(seed));
    const SearchSpace space(scenario);
    std::vector<SearchProgress> told;
    SearchOptions options{.top = 1};
    options.progress = [&](const SearchProgress& progress) { told.push_back(progress); };
    const SearchResult found = search(space, fast_weigher, predict_by_path, options);
    REQUIRE(found.finished);
    REQUIRE_FALSE(told.empty());
    for (const SearchProgress& progress : told) CHECK(progress.done + progress.beyond <= progress.total);
    const SearchProgress& last = told.back();
    CHECK(last.weighed == found.planning.evaluated);
    CHECK(last.done + found.planning.bounded == last.total);
    CHECK(last.beyond <= found.planning.bounded);
    beyond += last.beyond > 0 ? 1 : 0;
    if (found.planning.evaluated > 0) CHECK(last.left_is_known);
  }
  CHECK(beyond > 0);
}

TEST_CASE("where nothing can be built, the first that was not proven stands beside the first of each other reason") {
  const Scenario scenario = read_text(random_scenario(3));
  const SearchSpace space(scenario);
  const auto kept = [&](int not_proven, int reasons) {
    int calls = 0;
    const MakeWeigher make = [&](const Scenario& of) {
      Weigher weigher = slow_weigher(of);
      weigher.weigh = [&](const Family&, const SplitChoice&, std::optional<Seconds>) -> Estimate {
        if (calls++ < not_proven) throw TooLongToProve("split", "it takes too long to prove", "");
        throw InputError("schedule", calls % reasons == 0 ? "has no place for it" : "has too few microbatches", "");
      };
      return weigher;
    };
    const SearchOptions options;
    Weighing weighing(space, make, options);
    weighing.measure_bounds();
    CHECK(weighing.weigh(std::vector(weighing.waiting()), {}).empty());
    return weighing.smallest_shortfall().size();
  };
  const std::size_t one = kept(0, 1);
  CHECK(kept(0, 2) == one + 1);
  CHECK(kept(1, 1) == one + 1);
  CHECK(kept(1, 2) == one + 2);
}

TEST_CASE("candidates evaluated despite the memory bound are not counted twice") {
  // All are excluded by a bound that is below every need, so that none is the smallest until all were weighed: 64 at
  // once.
  constexpr Bytes bound{1001};
  std::string text = random_scenario(3, ", memory: 1000 B");
  const std::size_t at = text.find("microbatch: ");
  REQUIRE(at != std::string::npos);
  text.replace(at, text.find_first_of(",}\n", at) - at, "microbatch: auto");
  const Scenario scenario = read_text(text);
  const MakeWeigher make = [&](const Scenario& of) {
    Weigher weigher = slow_weigher(of);
    weigher.memory_bound = [=](const Family&) { return bound; };
    return weigher;
  };
  std::vector<std::int64_t> told;
  const SearchResult found = watched_search(scenario, make, told);
  REQUIRE(found.planning.evaluated > 2 * 64 * SearchSpace(scenario).splits());
  REQUIRE_FALSE(told.empty());
  CHECK(std::ranges::is_sorted(told));
  CHECK(told.back() == found.candidates);
}
