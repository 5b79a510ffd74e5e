// Stages with different data degrees through SimGrid: as the longest path where nothing contends, else slower.
#include "common/planner/make_plan.hpp"
#include "common/planner/unfolded.hpp"
#include "sim/predict.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/sim/made_up_machine.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

Plan plan_of(const std::string& machine, const std::string& degrees, const std::string& rest) {
  const Scenario scenario = read_text(
      "model: {vocabulary: 1024, hidden: 1024, heads: 16, ffn: 4096, layers: \"full/dense*8\", tied_embeddings: "
      "false}\ncluster: {machine: " +
      machine + "}\ntraining: {sequence: 512, precision: bf16, microbatch: 1, global_batch: 120}\nlayout: {data: " +
      "{by_stage: " + degrees + "}}\nsplit: uniform\n" + rest);
  return make_plan(scenario, only_choice(scenario));
}

double seconds(const Timeline& timeline) { return timeline.steps.front().duration.value; }
double by_path(const Plan& plan) { return seconds(predict_by_path(plan)); }
double by_simgrid(const Plan& plan) { return seconds(sim::find_engine("simgrid")(plan)); }

}  // namespace

TEST_CASE("through SimGrid two stages of different degrees take what the longest path says where nothing contends") {
  for (const char* degrees : {"[4, 1]", "[1, 4]", "[4, 2]", "[6, 2]"}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      CAPTURE(degrees, schedule);
      const Plan plan = plan_of("dgx-a100", degrees, std::string("schedule: ") + schedule + "\n");
      CHECK(by_simgrid(plan) == Approx(by_path(plan)).epsilon(1e-6));
      CHECK(seconds(sim::predict_unfolded(plan, "simgrid")) == Approx(by_simgrid(plan)).epsilon(1e-12));
    }
  }
}

TEST_CASE("messages of neighbouring stages that share a port slow each other down where all ranks are simulated") {
  // One device a machine: what comes to the middle stage from both sides goes through its ports, and messages take
  // longer than what they are made by.
  const std::string slow = tests::made_up_machine("name: single, devices: 1", "0.1 GB/s") + ", nodes: 4";
  const Plan plan = plan_of(slow, "[1, 2, 1]", "schedule: 1f1b\n");
  CHECK(by_simgrid(plan) > by_path(plan) * 1.05);
}

TEST_CASE("parts of a message that stay on a machine are there before those that leave it") {
  // Of the middle stage two ranks are on the first stage's machine, two on the last one's: what is late on one boundary
  // is early on the other, while the longest path takes both to be late.
  const Plan plan = plan_of("pcie-rtx3090, nodes: 2, ranks: 7", "[2, 4, 1]", "schedule: gpipe\n");
  CHECK(by_simgrid(plan) < by_path(plan));
  CHECK(by_simgrid(plan) > by_path(plan) * 0.95);
}

TEST_CASE("the folded platform of such stages delays messages and nothing else") {
  const Plan plan =
      plan_of("pcie-rtx3090, nodes: 2, ranks: 7", "[2, 4, 1]", "schedule: 1f1b\nsoftware: megatron-2021\n");
  const ScheduleGraph graph = build_graph(lowered_schedule(plan), plan.costs);
  const StepOutcome outcome = sim::find_step_engine("simgrid")(graph, plan.costs, {});
  CHECK(outcome.evaluation.makespan.value == Approx(evaluate(graph).makespan.value).epsilon(1e-9));
}
