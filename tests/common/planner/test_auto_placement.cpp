// Plans of a schedule that is made for its stages' times: on the placement where they are faster.
#include <algorithm>

#include "common/graph/memory.hpp"
#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/schedule/zb_auto/zb_auto.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/plan/steps.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

PlanChoice in_two_chunks(const std::string& schedule) {
  return {.microbatch = 2, .schedule = {.name = schedule, .chunks = 2}, .split = {.method = SplitMethod::dynamic}};
}

double most_activations(const Plan& plan) {
  const std::vector<double> peaks = peak_activations(plan.schedule);
  return *std::max_element(peaks.begin(), peaks.end());
}

// As scenarios/demo.yaml, of which layers and batch are left.
const std::string on_two_ranks =
    "cluster: {machine: local-cpu, ranks: 2, cores: 2}\n"
    "training: {sequence: 128, global_batch: 16, optimizer: adam}\n";
const std::string uneven = hybrid_block("sliding/dense*5, linear/dense, (sliding/moe, linear/moe, full/moe)*2");

}  // namespace

TEST_CASE("a plan of zb-auto stands where it is faster, in a loop or a wave, and is read back so") {
  const Scenario scenario = read_text(uneven + on_two_ranks);
  const Plan plan = make_plan(scenario, in_two_chunks("zb-auto"));
  CHECK(plan.schedule.rank_of_stage == loop_placement(2, 2));
  for (const std::string fixed : {"interleaved-zb", "zb-v", "v-half", "v-min"}) {
    CAPTURE(fixed);
    CHECK(step_of(plan).time <= step_of(make_plan(scenario, in_two_chunks(fixed))).time);
  }
  CHECK(most_activations(plan) <= 4);  // memory for all eight microbatches would do nothing
  const TemporaryFolder folder;
  const Plan back = read_plan(folder.write("plan.json", to_json(plan)));
  CHECK(back == plan);
  CHECK(make_plan(scenario, in_two_chunks("zb-auto")) == plan);
}

TEST_CASE("a plan of zb-auto with one chunk, or on one rank, has one placement") {
  const Scenario scenario = read_text(uneven + on_two_ranks);
  PlanChoice choice = in_two_chunks("zb-auto");
  choice.schedule.chunks = 1;
  CHECK(make_plan(scenario, choice).schedule.rank_of_stage == loop_placement(2, 1));
  CHECK(auto_placements(1, 2).size() == 1);
  CHECK(auto_placements(4, 3).size() == 1);
  CHECK(auto_placements(4, 4).size() == 2);
}

TEST_CASE("a plan of zb-auto takes the placement that fits where the other does not") {
  const Scenario roomy = read_text(uneven + on_two_ranks);
  Bytes least{std::int64_t{1} << 60};
  for (const std::string fixed : {"interleaved-zb", "zb-v"}) {
    least = std::min(least, step_of(make_plan(roomy, in_two_chunks(fixed))).peak);
  }
  const Scenario tight =
      read_text(uneven + "cluster: {machine: local-cpu, ranks: 2, cores: 2, memory: " + std::to_string(least.value) +
                " B}\ntraining: {sequence: 128, global_batch: 16, optimizer: adam}\n");
  for (const RankSummary& rank : predict_by_path(make_plan(tight, in_two_chunks("zb-auto"))).ranks) {
    CHECK(rank.peak_bytes <= least);
  }
}

TEST_CASE("a plan of zb-auto that has no room for a microbatch proposes smaller ones where there are some") {
  const Scenario scenario = read_text(uneven +
                                      "cluster: {machine: local-cpu, ranks: 2, cores: 2, memory: 64 KiB}\n"
                                      "training: {sequence: 128, global_batch: 16, optimizer: adam}\n");
  const auto hint_of = [&](std::int64_t microbatch) -> std::string {
    PlanChoice choice = in_two_chunks("zb-auto");
    choice.microbatch = microbatch;
    try {
      (void)make_plan(scenario, choice);
    } catch (const InputError& error) {
      CHECK_THAT(error.problem(), ContainsSubstring("one microbatch keeps "));
      return error.hint();
    }
    return "no error";
  };
  CHECK(hint_of(1) == "recompute, or cut the stages smaller");
  CHECK(hint_of(2) == "recompute, or cut the stages smaller, or take smaller microbatches");
}

// A fixed schedule that just fits must not beat it because the search was told to leave more room than is needed.
TEST_CASE("in the memory that a fixed schedule fills, a plan of zb-auto is no slower on the same split") {
  const std::string four_ranks =
      "cluster: {machine: local-cpu, ranks: 4, cores: 4}\n"
      "training: {sequence: 128, global_batch: 16, microbatch: 2, precision: fp32}\n";
  Scenario scenario = read_text(uneven + four_ranks);
  const auto plan_with = [&](const std::string& schedule) {
    return predict_by_path(make_plan(scenario, {.microbatch = 2,
                                                .schedule = {.name = schedule},
                                                .split = {.method = SplitMethod::counts, .counts = {5, 3, 3, 1}}}));
  };
  for (const std::string fixed : {"1f1b", "zb-h1", "eager-1f1b", "zb-h2", "gpipe"}) {
    const Timeline filling = plan_with(fixed);
    scenario.cluster.machine.device.memory.value = peak_of(filling);
    const Timeline found = plan_with("zb-auto");
    INFO(fixed << " fills " << peak_of(filling).value << ", zb-auto " << peak_of(found).value);
    CHECK(found.steps.front().duration.value <= filling.steps.front().duration.value * (1 + 1e-9));
    CHECK(peak_of(found) <= peak_of(filling));
    scenario.cluster.machine.device.memory.value = {std::int64_t{1} << 40};
  }
}
