// The search with the full simulator: the optimum of random spaces is that of simulating every candidate.
#include "common/search/search.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "sim/predict.hpp"
#include "tests/catch.hpp"
#include "tests/common/search/random_scenarios.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr unsigned scenarios = cases(40);

// Says of a plan what an engine said of it before, so that each is simulated once.
class Remembered {
 public:
  explicit Remembered(Evaluator engine) : engine_(std::move(engine)) {}

  Timeline operator()(const Plan& plan) {
    const auto known = std::ranges::find(said_, plan, &std::pair<Plan, Timeline>::first);
    if (known != said_.end()) return known->second;
    return said_.emplace_back(plan, engine_(plan)).second;
  }

 private:
  Evaluator engine_;
  std::deque<std::pair<Plan, Timeline>> said_;
};

const Candidate* best_of(const PlanningResult& result) {
  for (const Candidate& candidate : result.candidates) {
    if (candidate.own && candidate.fits) return &candidate;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a search finds what simulating all candidates finds") {
  const Evaluator engine = sim::find_engine("simgrid");
  int found_some = 0;
  for (unsigned seed = 100; seed < 100 + scenarios; ++seed) {
    CAPTURE(seed);
    const Scenario scenario = read_text(random_scenario(seed, seed % 2 == 0 ? ", memory: 10 MB" : ", memory: 30 MB"));
    const SearchSpace space(scenario);
    Remembered remembered(engine);
    const PlanningResult all = plan_scenario(scenario, std::ref(remembered));
    const Candidate* true_best = best_of(all);
    const SearchResult found = search(space, fast_weigher, engine, {.top = 1, .jobs = 2, .processes = 2});
    const Candidate* best = best_of(found.planning);
    REQUIRE((best == nullptr) == (true_best == nullptr));
    if (best == nullptr) continue;
    ++found_some;
    CHECK(best->iteration.value == Approx(true_best->iteration.value).epsilon(1e-9));
    const SearchResult unpruned =
        search(space, fast_weigher, std::ref(remembered), {.top = 1, .prune = false, .bound = false});
    REQUIRE(best_of(unpruned.planning) != nullptr);
    CHECK(best_of(unpruned.planning)->choice == best->choice);
  }
  CHECK(found_some >= found_in(25));
}

TEST_CASE("a search finds what simulating all candidates finds where the vocabulary may be divided") {
  const Evaluator engine = sim::find_engine("simgrid");
  int divided = 0;
  for (unsigned seed = 0; seed < cases(10U); ++seed) {
    CAPTURE(seed);
    const Scenario scenario = read_text(random_vocabularies(seed));
    const double least = scenario.software.exchange == PipelineExchange::synchronous ? 0.98 : 1 - 1e-9;
    const SearchSpace space(scenario);
    Remembered remembered(engine);
    const PlanningResult all = plan_scenario(scenario, std::ref(remembered));
    for (const Candidate& candidate : all.candidates) {
      if (!candidate.built || candidate.plan.layout.vocabulary_barriers == 0) continue;
      ++divided;
      const Seconds path = median_step(predict_by_path(candidate.plan)).duration;
      CAPTURE(describe(candidate.plan.layout), candidate.choice.schedule.name);
      CHECK(candidate.iteration.value >= path.value * least);  // which the search's limits rely on
    }
    const Candidate* true_best = best_of(all);
    const SearchResult found = search(space, fast_weigher, engine, {.top = 1, .jobs = 2, .processes = 2});
    const Candidate* best = best_of(found.planning);
    REQUIRE(true_best != nullptr);
    REQUIRE(best != nullptr);
    CHECK(best->iteration.value == Approx(true_best->iteration.value).epsilon(1e-9));
  }
  CHECK(divided >= found_in(100));
}
