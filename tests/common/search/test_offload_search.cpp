// Searches over what is offloaded: the best is that of all candidates, and a limit of memory decides which it is.
#include <algorithm>

#include "common/search/search.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/search/random_scenarios.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

Scenario with_offload_open(unsigned seed, const std::string& memory = "") {
  Scenario scenario = read_text(random_scenario(seed, memory));
  scenario.offloads = {{}, {.optimizer = true}, {.activations = true}, {.optimizer = true, .activations = true}};
  return scenario;
}

const Candidate* best_candidate(const PlanningResult& result) {
  const auto found = std::ranges::find_if(result.candidates, [](const Candidate& one) { return one.own && one.fits; });
  return found == result.candidates.end() ? nullptr : &*found;
}

Candidate found_in(const Scenario& scenario) {
  const SearchSpace space(scenario);
  const SearchResult found = search(space, fast_weigher, predict_by_path, {.top = 1});
  const Candidate* const best = best_candidate(found.planning);
  REQUIRE(best != nullptr);
  const PlanningResult all = plan_scenario(scenario, predict_by_path);
  CHECK(static_cast<std::int64_t>(all.candidates.size()) >= space.candidates());
  REQUIRE(best_candidate(all) != nullptr);
  CHECK(best->iteration.value == Approx(best_candidate(all)->iteration.value).epsilon(1e-9));
  CHECK(best->choice.offload == best_candidate(all)->choice.offload);
  return *best;
}

}  // namespace

TEST_CASE("a search finds the best of all, offloaded only where memory asks for it") {
  for (unsigned seed = 0; seed < testing::cases(5); ++seed) {
    CAPTURE(seed);
    const Candidate roomy = found_in(with_offload_open(seed));
    CHECK_FALSE(offloads(roomy.plan.training.offload));
    Bytes least = roomy.peak_bytes;
    for (const Candidate& each : plan_scenario(read_text(random_scenario(seed)), predict_by_path).candidates) {
      if (each.built) least = std::min(least, each.peak_bytes);
    }
    // Less than any plan takes that has its states on the device.
    const Candidate tight = found_in(with_offload_open(seed, ", " + memory_line(least - Bytes{1})));
    CHECK(offloads(tight.plan.training.offload));
    CHECK(tight.peak_bytes < least);
  }
}
