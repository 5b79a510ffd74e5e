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
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  const TransportKind kind = transport_kinds().front();
  SessionOptions options = test::checked_steps(kind, 2);
  options.check = false;
  const SessionLogs logs = test::train_session(kind, {prepared}, options);
  for (const Timeline& timeline :
       {predict_by_path(plan), merge_logs(plan, prepared.lowered, logs.ranks.front(), "test")}) {
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
    const CommunicationTimes times = communication_times(step, ranks);
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
