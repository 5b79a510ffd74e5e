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

// Where memory has no room for anything else on the device.
TEST_CASE("a search finds weights on the host where memory asks for it") {
  const auto open = [](const std::string& memory) {
    Scenario scenario = read_text(
        "model: {vocabulary: 512, hidden: 256, heads: 4, ffn: 1024, layers: \"full/dense*8\", tied_embeddings: true}\n"
        "cluster: {machine: dgx-a100, ranks: 8" +
        memory +
        "}\ntraining: {sequence: 64, global_batch: 32, microbatch: [1, 2]}\n"
        "layout: {pipeline: [1, 2], data: {degree: auto, sharding: fsdp, reshard_after_forward: true}}\n"
        "schedule: [1f1b, zb-h1]\nsplit: [dynamic, uniform]\n");
    scenario.offloads = {{}, {.optimizer = true}, {.optimizer = true, .parameters = true}};
    return scenario;
  };
  CHECK_FALSE(offloads(found_in(open("")).plan.training.offload));
  Bytes least;
  for (const Candidate& each : plan_scenario(open(""), predict_by_path).candidates) {
    if (!each.built || each.plan.training.offload.parameters) continue;
    least = least == Bytes{} ? each.peak_bytes : std::min(least, each.peak_bytes);
  }
  const Candidate tight = found_in(open(", " + memory_line(least - Bytes{1})));
  CHECK(tight.plan.training.offload.parameters);
  CHECK(tight.peak_bytes < least);
}

TEST_CASE("a search finds the best of all, offloaded only where memory asks for it") {
  for (unsigned seed = 0; seed < testing::cases(5U); ++seed) {
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
