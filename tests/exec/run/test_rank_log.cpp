#include "exec/run/rank_log.hpp"

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
                       .loss = 5.5451774444795625,
                       .held = {{5}, {1LL << 50}}});
  log.arena_bytes = {1LL << 40};
  log.receives_beside = 9;
  log.steps[0].events[1].beside = {0.1 + 0.2};
  log.steps[0].received_in_tensor = {17};
  log.steps[0].received_in_data = {1LL << 33};
  log.steps[0].within = {.tensor = {{0.1}, {0.2}}, .data = {{0.3}, {1.0 / 3}}};
  CHECK(parse_rank_log(to_text(log)) == log);
  log.steps[0].loss = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(parse_rank_log(to_text(log)).steps[0].loss));
  CHECK_THROWS_AS(parse_rank_log("{}"), RunError);
  CHECK_THROWS_AS(parse_rank_log("{"), RunError);
}

// A step of 10 s on the clock; its warm-up before it is not drawn.
TEST_CASE("a rank's memory changes when its actions are done, in the first step after the warm-up") {
  const Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 1, .microbatches = 1}});
  const Schedule lowered = lower(plan.schedule, {});
  const auto step = [&](double start, std::int64_t bytes) {
    return RankStep{.start = {start},
                    .events = {event({ActionKind::forward, 0, 0}, 0, start, start + 1),
                               event({ActionKind::input_gradient, 0, 0}, 0, start + 1, start + 2),
                               event({ActionKind::weight_gradient, 0, 0}, 0, start + 2, start + 3)},
                    .peak_bytes = {bytes},
                    .received_bytes = {},
                    .held = {{bytes}, {bytes}, {bytes - 60}}};
  };
  const RankLog log{.rank = 0, .steps = {step(10, 100), step(20, 200)}};
  const std::vector<MemoryPoint> drawn{{.time = {1}, .bytes = {200}}, {.time = {3}, .bytes = {140}}};
  CHECK(merge_logs(plan, lowered, {log}, "test", 1).memory == std::vector<std::vector<MemoryPoint>>{drawn});
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
  CHECK(timeline.ranks[0].by_axis == AxisTraffic{});
  CHECK(timeline.ranks[1].by_axis == AxisTraffic{.tensor = {}, .data = {}, .pipeline = {64}});
  CHECK(timeline.source == TimelineSource::measured);

  // Of the step in which it received most.
  RankLog twice = second;
  twice.steps.push_back(twice.steps.front());
  twice.steps[1].received_bytes = {100};
  twice.steps[1].received_in_tensor = {30};
  twice.steps[1].received_in_data = {6};
  RankLog other = first;
  other.steps.push_back(other.steps.front());
  const RankSummary most = merge_logs(plan, lowered, {other, twice}, "test").ranks[1];
  CHECK(most.received_bytes.value == 100);
  CHECK(most.by_axis == AxisTraffic{.tensor = {30}, .data = {6}, .pipeline = {64}});

  // It was there long before its rank looked: nothing was waited for.
  second.steps[0].events[0].end = {10.3};
  const Timeline early = merge_logs(plan, lowered, {first, second}, "test");
  CHECK(early.steps[0].events.at(1).waited.value == 0);
  CHECK(early.steps[0].events.at(1).end.value == Approx(0.2));
}

// By hand: rank 0 evicts at 10.2 and rank 3 has it at 10.3, before it looks at 10.6; rank 3 sends back at 10.8, rank 0
// has room from 10.9 on and has it at 11.0.
TEST_CASE("an eviction is one event of its receiver, from when both ranks can") {
  const Plan plan = emulated_plan({.schedule = "bpipe", .shape = {.ranks = 4, .microbatches = 4}});
  const Schedule lowered = lower(plan.schedule, {});
  const Action evict{ActionKind::evict, 0, 2};
  const Action load{ActionKind::load, 0, 2};
  std::vector<RankLog> logs;
  for (int rank = 0; rank < 4; ++rank) {
    logs.push_back({.rank = rank, .steps = {{.start = {10.0}, .events = {}, .peak_bytes = {}, .received_bytes = {}}}});
  }
  logs[0].steps[0].events = {event(evict, 0, 10.2, 10.25, 7), event(load, 0, 10.9, 11.0, 7)};
  logs[3].steps[0].events = {event(evict, 3, 10.6, 10.3, 7), event(load, 3, 10.8, 10.85, 7)};
  const Timeline timeline = merge_logs(plan, lowered, logs, "test");
  const std::vector<Event>& events = timeline.steps.at(0).events;
  REQUIRE(events.size() == 2);
  CHECK(events[0].action == load);
  CHECK(events[0].rank == 0);
  CHECK(events[0].start.value == Approx(0.9));
  CHECK(events[0].end.value == Approx(1.0));
  CHECK(events[1].action == evict);
  CHECK(events[1].rank == 3);
  CHECK(events[1].start.value == Approx(0.2));
  CHECK(events[1].end.value == Approx(0.3));
  CHECK(events[1].bytes.value == 7);

  logs[0].steps[0].events.erase(logs[0].steps[0].events.begin());
  CHECK_THROWS_WITH(merge_logs(plan, lowered, logs, "test"), ContainsSubstring("0EVICT2 was sent by no rank"));
}

// By hand: rank 0 fills its first bucket at 11 and comes to its REDUCE_GRAD at 14; rank 1 at 12 and at 13.
TEST_CASE(
    "a reduction beside the backward starts when the last rank's first bucket could, and is exposed from when all "
    "have come to it") {
  Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 1, .microbatches = 1}});
  plan.layout.data.degree = 2;
  const Schedule lowered = lower(plan.schedule, {.data_parallel = true});
  const Action reduction{ActionKind::reduce_gradient, 0, no_microbatch};
  std::vector<RankLog> logs{{.rank = 0, .steps = {}}, {.rank = 1, .steps = {}}};
  Event first = event(reduction, 0, 14, 16);
  first.beside = {3};
  Event second = event(reduction, 1, 13, 16);
  second.beside = {1};
  logs[0].steps.push_back({.start = {10},
                           .events = {event({ActionKind::forward, 0, 0}, 0, 10, 12), first},
                           .peak_bytes = {},
                           .received_bytes = {}});
  logs[1].steps.push_back({.start = {10},
                           .events = {event({ActionKind::forward, 0, 0}, 1, 10, 12), second},
                           .peak_bytes = {},
                           .received_bytes = {}});
  const Timeline timeline = merge_logs(plan, lowered, logs, "test");
  int seen = 0;
  for (const Event& of : timeline.steps.front().events) {
    if (of.action != reduction) continue;
    ++seen;
    CHECK(of.start == Seconds{4});
    CHECK(of.end == Seconds{6});
    CHECK(of.beside == Seconds{2});
  }
  CHECK(seen == 2);
}
