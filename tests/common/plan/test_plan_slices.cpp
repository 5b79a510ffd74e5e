// Slices of a schedule in a plan's file: their tokens and costs, where they differ.
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

Plan plan_of_slices(const std::string& schedule) {
  const Scenario scenario =
      read_text(scenario_text("cluster: {machine: local-cpu, ranks: 2, cores: 2}\ntraining: {sequence: 32, "
                              "global_batch: 8, microbatch: 2}\nschedule: " +
                              schedule + "\n"));
  return make_plan(scenario, only_choice(scenario));
}

}  // namespace

TEST_CASE("tokens of slices stand in a plan, where they differ") {
  const Plan plan = plan_of_slices("{name: seq-1f1b, slices: [16, 8, 6, 2]}");
  CHECK(plan.schedule.slice_tokens == std::vector<std::int64_t>{16, 8, 6, 2});
  CHECK(plan.costs.slice_tokens == plan.schedule.slice_tokens);
  CHECK(plan.costs.boundary_bytes.value == 2 * 16 * 64 * 4);
  for (int slice = 0; slice < 4; ++slice) {
    const std::int64_t tokens = plan.schedule.slice_tokens[static_cast<std::size_t>(slice)];
    CHECK(boundary_of_stage(plan.costs, 0, 4 + slice).value == 2 * tokens * 64 * 4);
  }
  const Plan back = read_back(plan);
  CHECK(back == plan);
  CHECK(to_json(back) == to_json(plan));
  CHECK(back.costs == predicted_costs(back));
  // Another cut is another run.
  CHECK(plan_digest(plan) != plan_digest(plan_of_slices("{name: seq-1f1b, slices: [8, 16, 6, 2]}")));
}

TEST_CASE("equal slices leave a plan as it was, however they are asked for") {
  const std::string plan = to_json(plan_of_slices("{name: seq-1f1b, slices: 4}"));
  CHECK(plan.find("slice_tokens") == std::string::npos);
  CHECK(to_json(plan_of_slices("{name: seq-1f1b, slices: [8, 8, 8, 8]}")) == plan);
  CHECK(to_json(plan_of_slices("\"seq-1f1b, slices of 8 + 8 + 8 + 8\"")) == plan);
  CHECK(to_json(plan_of_slices("{name: seq-1f1b, slices: 4, slices_by: average}")) == plan);
}

TEST_CASE("equal slices have bytes of their own where they hand something on") {
  const Plan plan = plan_of_slices("{name: seq-1f1b, slices: 4}");
  for (const ComputeCost& stage : plan.costs.stages) {
    REQUIRE(stage.slice_bytes.size() == 4);
    CHECK(stage.slice_bytes[0].gradients_taken > Bytes{});
    CHECK(stage.slice_bytes[3].gradients_taken == Bytes{});
    CHECK(stage.slice_bytes[0].gradients_left == Bytes{});
    CHECK(stage.slice_bytes[3].gradients_left > Bytes{});
  }
  CHECK(read_back(plan) == plan);
  CHECK(to_json(plan).find("gradients_taken_bytes") != std::string::npos);
  const std::string whole = to_json(plan_of_slices("1f1b"));
  CHECK(whole.find("slice_bytes") == std::string::npos);
  CHECK_THAT(message_after(plan, [](Plan& p) { p.costs.stages[0].slice_bytes.pop_back(); }),
             ContainsSubstring("times or bytes of other slices than the 4"));
}

TEST_CASE("slices that do not make up the sequence, or have other costs, are refused") {
  const Plan plan = plan_of_slices("{name: seq-1f1b, slices: [16, 8, 6, 2]}");
  CHECK_THAT(message_after(plan, [](Plan& p) { p.schedule.slice_tokens.back() = 4; }),
             ContainsSubstring("schedule.slice_tokens") && ContainsSubstring("= 34 tokens"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.schedule.slice_tokens.pop_back(); }),
             ContainsSubstring("has 3 entries for 4 slices"));
  CHECK_THAT(message_after(plan,
                           [](Plan& p) {
                             p.schedule.slice_tokens = {15, 9, 6, 2};
                           }),
             ContainsSubstring("other slice_tokens than the schedule"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.costs.stages[0].slice_bytes.pop_back(); }),
             ContainsSubstring("times or bytes of other slices than the 4"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.costs.slice_gathering = {{1e-3}}; }),
             ContainsSubstring("slice_gathering_s"));
}
