// Sessions whose compute and data-parallel wire are emulated: their steps beside the predicted ones.
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/timeline/statistics.hpp"
#include "exec/run/rank_log.hpp"
#include "tests/catch.hpp"
#include "tests/exec/commands/sessions.hpp"
#include "tests/exec/tiny_plan.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// A machine so slow that a step of the tiny model takes tens of milliseconds, and so do the sums of its gradients: some
// of them are hidden by its last backward, some are not.
Plan slow_plan(int pipeline, const std::string& schedule, const std::string& sharding) {
  Plan plan = tiny_plan({.ranks = pipeline,
                         .microbatches = 2 * pipeline,
                         .schedule = schedule,
                         .data = 4,
                         .more_of_data = sharding,
                         .shallow = true});
  Machine& machine = plan.cluster.machine;
  machine.cores = 4 * pipeline;
  for (auto* rate : {&machine.device.peak.value.value, &machine.device.memory_bandwidth.value.value}) *rate /= 150;
  machine.collective_bandwidth.value = {10e6};
  machine.collective_latency.value = {20e-6};
  machine.collective_latency_per_rank.value = {};
  plan.software.data_overlap = true;
  plan.software.data_bucket = {.bytes = {8000}};
  plan.costs = predicted_costs(plan);
  return plan;
}

SessionLogs emulate(const PreparedPlan& prepared) {
  const TransportKind kind = transport_kinds().front();
  SessionOptions options = test::checked_steps(kind, 3);
  options.check = false;
  options.emulate = true;
  return test::train_session(kind, {prepared}, options);
}

// The fastest step, to which a busy machine has added least: of up to three runs, of which this is the first.
Seconds fastest_step(const PreparedPlan& prepared, const Timeline& measured, Seconds enough) {
  Seconds least = measured.steps.front().duration;
  const auto look_at = [&](const Timeline& timeline) {
    for (const StepTimeline& step : timeline.steps) least = std::min(least, step.duration);
  };
  look_at(measured);
  for (int more = 0; more < 2 && least >= enough; ++more) {
    look_at(merge_logs(prepared.plan, prepared.lowered, emulate(prepared).ranks.front(), "test"));
  }
  return least;
}

}  // namespace

TEST_CASE("emulated steps take no less than the predicted time, with sums of gradients that are hidden in part") {
  const int pipeline = GENERATE(1, 2);
  const std::string sharding = GENERATE(
      std::string(), ", sharding: zero1", ", sharding: fsdp, reshard_after_forward: true, reduce: each_microbatch",
      ", sharding: {kind: hsdp, shard: 2}, reshard_after_forward: false, reduce: last_microbatch");
  const std::string schedule = pipeline == 1 ? "1f1b" : GENERATE(std::string("1f1b"), "zb-h1");
  CAPTURE(pipeline, schedule, sharding);
  const Plan plan = slow_plan(pipeline, schedule, sharding);
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  const Timeline measured = merge_logs(plan, prepared.lowered, emulate(prepared).ranks.front(), "test");
  const Timeline predicted = predict_by_path(plan);
  // Times are cut to nanoseconds, gradients to whole values.
  CHECK(median_step(measured).duration >= predicted.steps.front().duration * 0.999);
  if (reduces_in_actions(plan.layout)) {  // whose times have them: less than if they followed what hides them
    Plan behind = plan;
    behind.software.data_overlap = false;
    behind.costs = predicted_costs(behind);
    const Seconds one_after_the_other = predict_by_path(behind).steps.front().duration;
    CAPTURE(predicted.steps.front().duration.value, one_after_the_other.value);
    REQUIRE(predicted.steps.front().duration * 1.2 < one_after_the_other);
    CHECK(fastest_step(prepared, measured, one_after_the_other) < one_after_the_other);
    return;
  }
  for (const Timeline& timeline : {predicted, measured}) {
    const CommunicationTimes times = communication_times(timeline, median_step(timeline));
    const CommunicationTime& sums = times[static_cast<std::size_t>(CommunicationUse::gradients)];
    CAPTURE(timeline.producer, sums.hidden.value, sums.on_its_way.value);
    CHECK(sums.hidden > Seconds{});
    CHECK(sums.hidden < sums.on_its_way);
  }
}

// Of four ranks in a ring, on a wire that takes about as long as the products beside it.
TEST_CASE("emulated steps of an asynchronous tensor group take no less than the predicted time") {
  const int pipeline = GENERATE(1, 2);
  Plan plan = tiny_plan({.ranks = pipeline,
                         .microbatches = 2 * pipeline,
                         .schedule = pipeline == 1 ? "1f1b" : "zb-h1",
                         .shallow = true,
                         .tensor = 4,
                         .sequence_parallel = true,
                         .heads = 4});
  plan.layout.tensor.asynchronous = true;
  Machine& machine = plan.cluster.machine;
  machine.cores = 4 * pipeline;
  machine.device.peak.value.value /= 24000;
  machine.device.memory_bandwidth.value.value /= 600;
  machine.collective_bandwidth.value = {250e3};
  machine.collective_latency.value = {20e-6};
  machine.collective_latency_per_rank.value = {};
  plan.costs = predicted_costs(plan);
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  const Timeline measured = merge_logs(plan, prepared.lowered, emulate(prepared).ranks.front(), "test");
  const Timeline predicted = predict_by_path(plan);
  CHECK(median_step(measured).duration >= predicted.steps.front().duration * 0.999);
  // And less than with collectives whole, in front of their products or behind them.
  Plan whole = plan;
  whole.layout.tensor.asynchronous = false;
  whole.costs = predicted_costs(whole);
  const Seconds one_after_the_other = predict_by_path(whole).steps.front().duration;
  CAPTURE(predicted.steps.front().duration.value, one_after_the_other.value);
  REQUIRE(predicted.steps.front().duration * 1.2 < one_after_the_other);
  CHECK(fastest_step(prepared, measured, one_after_the_other) < one_after_the_other);
}
