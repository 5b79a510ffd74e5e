#include "exec/rank_log.hpp"

#include <cmath>
#include <limits>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/plans.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Event event(const Action& action, int rank, double start, double end, std::int64_t bytes = 0) {
  return {.action = action, .rank = rank, .start = {start}, .end = {end}, .waited = {}, .bytes = {bytes}};
}

}  // namespace

TEST_CASE("a log reads back to the same bits") {
  RankLog log{.rank = 3, .steps = {}};
  log.steps.push_back({.start = {1234567.000000001},
                       .events = {event({ActionKind::forward, 1, 2}, 3, 0.1, 1.0 / 3),
                                  event({ActionKind::optimizer_step, 1, no_microbatch}, 3, 1e-9, 2e300, 1LL << 60)},
                       .peak_bytes = {7},
                       .received_bytes = {8},
                       .loss = 5.5451774444795625});
  CHECK(parse_rank_log(to_text(log)) == log);
  log.steps[0].loss = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(parse_rank_log(to_text(log)).steps[0].loss));
  CHECK_THROWS_AS(parse_rank_log("{}"), RunError);
  CHECK_THROWS_AS(parse_rank_log("{"), RunError);
}

// By hand: the last rank leaves the barrier at 10.1; rank 0 sends at 10.2; the message is there at 10.5; rank 1 began
// to wait at 10.4.
TEST_CASE("a receive runs from its send to its arrival, and waits only where its rank did") {
  const Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 2, .microbatches = 1}});
  const Schedule lowered = lower(plan.schedule, {});
  RankLog first{.rank = 0,
                .steps = {{.start = {10.0},
                           .events = {event({ActionKind::send_forward, 0, 0}, 0, 10.2, 10.25, 64)},
                           .peak_bytes = {100},
                           .received_bytes = {}}}};
  RankLog second{.rank = 1,
                 .steps = {{.start = {10.1},
                            .events = {event({ActionKind::receive_forward, 1, 0}, 1, 10.4, 10.5, 64)},
                            .peak_bytes = {90},
                            .received_bytes = {64}}}};
  const Timeline timeline = merge_logs(plan, lowered, {first, second}, "test");
  REQUIRE(timeline.steps.size() == 1);
  const Event& receive = timeline.steps[0].events.at(1);
  CHECK(receive.start.value == Approx(0.1));
  CHECK(receive.end.value == Approx(0.4));
  CHECK(receive.waited.value == Approx(0.1));
  CHECK(timeline.steps[0].duration.value == Approx(0.4));
  CHECK(timeline.ranks[1].received_bytes.value == 64);
  CHECK(timeline.source == TimelineSource::measured);

  // It was there long before its rank looked: nothing was waited for.
  second.steps[0].events[0].end = {10.3};
  const Timeline early = merge_logs(plan, lowered, {first, second}, "test");
  CHECK(early.steps[0].events.at(1).waited.value == 0);
  CHECK(early.steps[0].events.at(1).end.value == Approx(0.2));
}
