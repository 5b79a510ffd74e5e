// Ranks that share cores: folded as unfolded.
#include <algorithm>
#include <random>

#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/sim/step_seconds.hpp"

using namespace plumb;
using namespace plumb::testing;
using tests::folded_seconds;
using tests::unfolded_seconds;

namespace {

std::string on_cores(int cores, int ranks, const std::string& layout) {
  return "model: {vocabulary: 512, hidden: 128, heads: 8, ffn: 512, layers: \"full/dense*8\"}\n"
         "cluster: {machine: local-cpu, ranks: " +
         std::to_string(ranks) + ", cores: " + std::to_string(cores) +
         "}\ntraining: {sequence: 128, global_batch: 16, microbatch: 1}\nschedule: 1f1b\nsplit: uniform\nlayout: " +
         layout + "\n";
}

Plan plan_on(int cores, int pipeline, int tensor, int data) {
  const auto text = [](int number) { return std::to_string(number); };
  const Scenario scenario = read_text(on_cores(cores, pipeline * tensor * data,
                                               "{pipeline: " + text(pipeline) + ", tensor: {degree: " + text(tensor) +
                                                   "}, data: {degree: " + text(data) + "}}"));
  return make_plan(scenario, only_choice(scenario));
}

}  // namespace

// All ranks of the stage compute at once, so each has cores / ranks of one.
TEST_CASE("one stage on fewer cores takes what all of its ranks take") {
  for (const auto& [cores, tensor, data] : {std::tuple{2, 2, 2}, std::tuple{2, 1, 4}, std::tuple{2, 4, 1},
                                            std::tuple{3, 4, 1}, std::tuple{1, 2, 1}, std::tuple{4, 2, 2}}) {
    const Plan plan = plan_on(cores, 1, tensor, data);
    INFO(describe(plan.layout) << " on " << cores << " cores");
    CHECK(folded_seconds(plan) == Approx(unfolded_seconds(plan)).epsilon(1e-9));
    CHECK(predict_by_path(plan).steps.front().duration.value == Approx(folded_seconds(plan)).epsilon(1e-9));
    // No more is computed at once than there are cores.
    const Plan own = plan_on(tensor * data, 1, tensor, data);
    const double work = 16.0 / data * (own.costs.stages[0].forward + backward_time(own.costs.stages[0])).value;
    if (tensor == 1) CHECK(folded_seconds(plan) >= work * data / cores);
  }
}

TEST_CASE("stages that share cores take of each other what all ranks take") {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    const auto one_of = [&](std::initializer_list<int> all) { return all.begin()[random() % all.size()]; };
    const int pipeline = one_of({2, 4});
    const int tensor = one_of({1, 2, 4});
    const int data = one_of({1, 2});
    const int cores = one_of({1, 2, 3, 4, 6, 16});
    const Plan plan = plan_on(cores, pipeline, tensor, data);
    INFO(describe(plan.layout) << " on " << cores << " cores");
    const double folded = folded_seconds(plan);
    CHECK(folded >= 0.97 * unfolded_seconds(plan));
    CHECK(folded <= 1.1 * unfolded_seconds(plan));
    const bool enough = cores >= pipeline * tensor * data;
    if (enough) CHECK(folded == Approx(predict_by_path(plan).steps.front().duration.value).epsilon(1e-6));
  }
}

TEST_CASE("no layout of four ranks on two cores is chosen that is slower with all ranks") {
  const Scenario scenario = read_text(on_cores(2, 4, "auto"));
  const PlanningResult result = plan_scenario(scenario, sim::find_engine("simgrid"));
  REQUIRE(result.candidates.front().built);
  const double chosen = unfolded_seconds(result.candidates.front().plan);
  for (const Candidate& candidate : result.candidates) {
    if (candidate.built && candidate.fits) CHECK(chosen <= 1.03 * unfolded_seconds(candidate.plan));
  }
}
