// A tied table on one rank: what the plan predicts for it, against what a run holds.
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "exec/calibrate/calibrate.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("One rank with a tied table holds one table and two of its gradients, as predicted") {
  const int chunks = GENERATE(1, 2);  // two stages of the rank hold two tables with all that belongs to them
  Scenario scenario;
  scenario.model = test::gpt2(2, true);
  scenario.model.vocabulary = 4096;  // so that the table is most of the memory
  scenario.cluster.machine.device.memory.value = {std::int64_t{1} << 40};
  scenario.training = {.sequence = 32, .global_batch = 4};
  scenario.microbatches = {1};
  scenario.schedules = {{.name = chunks == 1 ? "1f1b" : "interleaved-1f1b", .chunks = chunks}};
  scenario.splits = {{.method = SplitMethod::uniform}};
  CalibrationOptions options;
  options.rounds = 3;
  scenario.profile = calibrate(scenario, options);
  const Plan plan = make_plan(scenario, {1, scenario.schedules.front(), scenario.splits.front()});
  const Bytes predicted = predict_by_path(plan).ranks.at(0).peak_bytes;
  const Bytes measured = test::train(plan, 2).peak.at(0);
  const std::int64_t table = 4096 * 32 * 4;
  INFO("predicted " << predicted.value << ", measured " << measured.value << ", a table " << table);
  CHECK(std::abs((predicted - measured).value) < table / 10);
}
