#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "common/base/error.hpp"
#include "common/planner/remedies.hpp"
#include "common/search/search.hpp"
#include "tests/catch.hpp"
#include "tests/common/planner/change_scenario.hpp"
#include "tests/common/search/any_scenario.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

PlanningResult planned(const Scenario& scenario) {
  if (!leaves_layout_open(scenario)) return plan_scenario(scenario, predict_by_path);
  return search(SearchSpace(scenario), fast_weigher, predict_by_path, {.top = 3}).planning;
}

// The least memory that a candidate of the scenario needs; nullopt if none can be built.
std::optional<Bytes> needed(const PlanningResult& result) {
  std::optional<Bytes> least;
  for (const Candidate& candidate : result.candidates) {
    if (!candidate.built || !candidate.own) continue;
    least = std::min(least.value_or(candidate.peak_bytes), candidate.peak_bytes);
  }
  return least;
}

struct Counts {
  int refused = 0;     // by the reader, or no candidate can be built
  int fits = 0;        // in little memory
  int too_large = 0;   // with an error that says so
  int remedies = 0;    // that fitted when they were followed
  double slowest = 0;  // seconds
  unsigned slowest_seed = 0;
};

void follow(const Remedy& remedy, const std::string& text, Counts& counts) {
  CAPTURE(remedy.text);
  try {
    const Scenario followed = changed_scenario(text, remedy.text);
    if (!leaves_layout_open(followed)) {
      CHECK(followed.layout == remedy.scenario.layout);
      CHECK(followed.cluster == remedy.scenario.cluster);
    }
    (void)best_fitting(planned(followed), followed);
    ++counts.remedies;
  } catch (const InputError& error) {
    FAIL_CHECK(error.what());
  }
}

void try_seed(unsigned seed, Counts& counts) {
  const std::string ample = any_scenario(seed, ample_memory);
  CAPTURE(seed, ample);
  std::optional<Bytes> need;
  try {
    need = needed(planned(read_text(ample)));
  } catch (const InputError&) {
  }
  if (!need) {
    ++counts.refused;
    return;
  }
  const std::string text = any_scenario(seed, tight_memory(*need, seed));
  CAPTURE(text);
  const Scenario scenario = read_text(text);
  const PlanningResult result = planned(scenario);
  try {
    (void)best_fitting(result, scenario);
    ++counts.fits;
    return;
  } catch (const InputError& error) {
    CHECK_FALSE(error.hint().empty());
    ++counts.too_large;
  }
  const auto nearest = std::ranges::find_if(result.candidates, &Candidate::own);
  REQUIRE(nearest != result.candidates.end());
  for (const Remedy& remedy : remedies(scenario, *nearest)) follow(remedy, text, counts);
}

// PLUMB_RANDOM_SCENARIOS=5000 tries more of them, PLUMB_RANDOM_SEED=1 others.
unsigned asked(const char* name, unsigned usual) {
  const char* value = std::getenv(name);
  return value == nullptr ? usual : static_cast<unsigned>(std::stoul(value));
}

}  // namespace

TEST_CASE("random scenarios that barely fit or do not are planned, or refused with a hint that works") {
  const unsigned all = asked("PLUMB_RANDOM_SCENARIOS", cases(300U));
  const unsigned first = asked("PLUMB_RANDOM_SEED", 0);
  Counts counts;
  for (unsigned seed = first; seed < first + all; ++seed) {
    const auto begin = std::chrono::steady_clock::now();
    try_seed(seed, counts);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (seconds > counts.slowest) {
      counts.slowest = seconds;
      counts.slowest_seed = seed;
    }
  }
  std::cout << all << " random scenarios: " << counts.fits << " fit, " << counts.too_large << " do not, "
            << counts.refused << " refused; " << counts.remedies << " remedies followed; slowest " << counts.slowest
            << " s (seed " << counts.slowest_seed << ")\n";
  CHECK(counts.fits > found_in(all / 20));
  CHECK(counts.too_large > found_in(all / 10));
  CHECK(counts.remedies > found_in(all / 10));
}
