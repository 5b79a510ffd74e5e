// What a run tells of communication beside its ranks' computing, and what is predicted of it.
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

Timeline measured_in_two_steps(const Plan& plan) {
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  const TransportKind kind = transport_kinds().front();
  SessionOptions options = test::checked_steps(kind, 2);
  options.check = false;
  const SessionLogs logs = test::train_session(kind, {prepared}, options);
  return merge_logs(plan, prepared.lowered, logs.ranks.front(), "test");
}

}  // namespace

// In buckets beside the last backward, or behind it; weights that are gathered once a step are never hidden.
TEST_CASE("a run and its prediction both tell how much of gradients' sums the backward hides") {
  const std::string more = GENERATE("", ", sharding: fsdp, reshard_after_forward: false, reduce: last_microbatch");
  const bool overlap = GENERATE(false, true);
  CAPTURE(more, overlap);
  Plan plan =
      tiny_plan({.ranks = 1, .microbatches = 2, .schedule = "1f1b", .data = 2, .more_of_data = more, .shallow = true});
  plan.software.data_overlap = overlap;
  plan.software.data_bucket = {.bytes = {5000}};
  plan.costs = predicted_costs(plan);
  for (const Timeline& timeline : {predict_by_path(plan), measured_in_two_steps(plan)}) {
    const StepTimeline& step = median_step(timeline);
    const int ranks = ranks_of(timeline);
    CAPTURE(ranks);
    Seconds beside;
    Seconds all;
    for (const Event& event : step.events) {
      if (event.action.kind != ActionKind::reduce_gradient) continue;
      beside += event.beside / ranks;
      all += (event.end - event.start + event.beside) / ranks;
    }
    const CommunicationTimes times = communication_times(timeline, step);
    const CommunicationTime& sums = times[static_cast<std::size_t>(CommunicationUse::gradients)];
    CHECK(sums.on_its_way.value == Approx(all.value));
    CHECK((beside > Seconds{}) == overlap);
    if (overlap) CHECK(sums.hidden > Seconds{});
    const CommunicationTime& weights = times[static_cast<std::size_t>(CommunicationUse::weights)];
    CHECK((weights.on_its_way > Seconds{}) == !more.empty());
    // Of a run a collective lasts until its last rank has left: the first one may compute again by then.
    if (timeline.source == TimelineSource::measured) {
      CHECK(sums.hidden <= sums.on_its_way);
      CHECK(weights.hidden <= weights.on_its_way);
    } else {
      CHECK(sums.hidden.value == Approx(beside.value));
      CHECK(weights.hidden == Seconds{});
    }
    CHECK(times[static_cast<std::size_t>(CommunicationUse::messages)] == CommunicationTime{});
  }
}

// Each block's weights are gathered before its F and B and its gradients reduced behind its B, beside the neighbours'
// computing or not; a tensor group's collectives stand in nobody's shadow on hosts.
TEST_CASE("a run and its prediction both tell what goes on within actions, and how much of it computing hides") {
  const bool overlap = GENERATE(false, true);
  CAPTURE(overlap);
  Plan plan = tiny_plan({.ranks = 1,
                         .microbatches = 2,
                         .schedule = "1f1b",
                         .data = 2,
                         .more_of_data = ", sharding: fsdp, reduce: each_microbatch",
                         .tensor = 2});
  plan.software.data_overlap = overlap;
  plan.costs = predicted_costs(plan);
  const Timeline measured = measured_in_two_steps(plan);
  const Timeline predicted = predict_by_path(plan);
  const DataMoves& moves = plan.costs.stages.front().data_moves;
  for (const RankSummary& rank : predicted.ranks) {
    const CommunicationTime& data = rank.by_axis.value().data_within.value();
    CHECK(data.on_its_way.value == Approx(2 * (2 * moves.gathering + moves.reducing).value));
    CHECK((data.hidden > Seconds{}) == overlap);
    CHECK(rank.by_axis->tensor_within.value().hidden == Seconds{});
  }
  for (const RankSummary& rank : measured.ranks) {
    const AxisTraffic& axes = rank.by_axis.value();
    CHECK(axes.data_within.value().on_its_way > Seconds{});
    CHECK(axes.data_within->hidden >= Seconds{});
    CHECK(exposed(*axes.data_within) > Seconds{});
    CHECK(axes.tensor_within.value().on_its_way > Seconds{});
    CHECK(axes.tensor_within->hidden == Seconds{});
  }
  const CommunicationTimes times = communication_times(measured, median_step(measured));
  Seconds sum;
  for (const RankSummary& rank : measured.ranks) sum += rank.by_axis->data_within->on_its_way;
  CHECK(times[static_cast<std::size_t>(CommunicationUse::data_within)].on_its_way.value ==
        Approx(sum.value / static_cast<double>(measured.ranks.size())));
}

// Beside a panel's products the blocks of the next one are on their way.
TEST_CASE("a run of a grid in panels and its prediction both tell that products hide a part of what it moves") {
  Plan plan = tiny_plan(
      {.ranks = 1, .microbatches = 2, .schedule = "1f1b", .tensor = 4, .grid = ", kind: 2d, asynchronous: true"});
  plan.costs = predicted_costs(plan);
  for (const Timeline& timeline : {predict_by_path(plan), measured_in_two_steps(plan)}) {
    CAPTURE(timeline.producer);
    const CommunicationTimes times = communication_times(timeline, median_step(timeline));
    const CommunicationTime& tensor = times[static_cast<std::size_t>(CommunicationUse::tensor_within)];
    CHECK(tensor.hidden > Seconds{});
    CHECK(exposed(tensor) > Seconds{});
  }
}
