#include "common/timeline/statistics.hpp"

#include <random>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/effort.hpp"

namespace plumb {
namespace {

Event event(ActionKind kind, int rank, double start, double end) {
  return {.action = {.kind = kind, .stage = rank, .microbatch = 0},
          .rank = rank,
          .start = {start},
          .end = {end},
          .waited = {},
          .bytes = {}};
}

}  // namespace

TEST_CASE("the median step is the lower one of two") {
  Timeline timeline;
  REQUIRE_THROWS_AS(median_step(timeline), InputError);
  for (const double duration : {4.0, 1.0, 3.0, 2.0}) timeline.steps.push_back({{}, {duration}});
  REQUIRE(median_step(timeline).duration.value == 2.0);
  timeline.steps.push_back({{}, {2.5}});
  REQUIRE(median_step(timeline).duration.value == 2.5);
}

TEST_CASE("ordered steps go by rank, start and action and end with the last event") {
  const StepTimeline step =
      ordered_step({event(ActionKind::forward, 1, 1, 2), event(ActionKind::weight_gradient, 0, 3, 7),
                    event(ActionKind::backward, 0, 3, 5), event(ActionKind::forward, 0, 0, 1)});
  REQUIRE(step.duration.value == 7);
  REQUIRE(step.events[0].action.kind == ActionKind::forward);
  REQUIRE(step.events[1].action.kind == ActionKind::backward);
  REQUIRE(step.events[2].action.kind == ActionKind::weight_gradient);
  REQUIRE(step.events[3].rank == 1);
}

TEST_CASE("communication between ranks and its overlapped part equal a case worked out by hand") {
  // Rank 0: B 0–10, two messages 2–5 and 4–6 under it, buckets from 6 on, the rest of the sum 10–13; weights 13–15, of
  // which F 14–16 hides the second half. Rank 1: B 0–10, behind it one sum; its send exposes nothing.
  Event sum = event(ActionKind::reduce_gradient, 0, 10, 13);
  sum.beside = {4};
  const StepTimeline step =
      ordered_step({event(ActionKind::backward, 0, 0, 10), event(ActionKind::receive_forward, 0, 2, 5),
                    event(ActionKind::receive_backward, 0, 4, 6), sum, event(ActionKind::unshard, 0, 13, 15),
                    event(ActionKind::forward, 0, 14, 16), event(ActionKind::backward, 1, 0, 10),
                    event(ActionKind::send_forward, 1, 0, 1), event(ActionKind::reduce_gradient, 1, 10, 13)});
  Timeline timeline;
  timeline.schedule.ranks = 2;
  timeline.ranks.resize(2);
  timeline.ranks[1].by_axis.emplace().data_within = CommunicationTime{.on_its_way = {8}, .hidden = {6}};
  const CommunicationTimes times = communication_times(timeline, step);
  const auto of = [&](CommunicationUse use) { return times[static_cast<std::size_t>(use)]; };
  REQUIRE(of(CommunicationUse::gradients) == CommunicationTime{.on_its_way = {5}, .hidden = {2}});
  REQUIRE(of(CommunicationUse::weights) == CommunicationTime{.on_its_way = {1}, .hidden = {0.5}});
  REQUIRE(of(CommunicationUse::messages) == CommunicationTime{.on_its_way = {2}, .hidden = {2}});
  REQUIRE(of(CommunicationUse::data_within) == CommunicationTime{.on_its_way = {4}, .hidden = {3}});
  REQUIRE(of(CommunicationUse::tensor_within) == CommunicationTime{});
  REQUIRE(exposed(of(CommunicationUse::gradients)) == Seconds{3});
  REQUIRE(communication_times({}, {}) == CommunicationTimes{});
  timeline.schedule.ranks = 1;
  REQUIRE_THROWS_AS(communication_times(timeline, step), InputError);
}

TEST_CASE("compute, exposed communication and idle of a step worked out by hand") {
  // Rank 0: F 0–2, then a message 4–7 and another 5–8, B 8–10. Rank 1: message 1–4 under F 0–3, B 4–6, optimizer 6–7.
  const StepTimeline step = ordered_step({
      event(ActionKind::forward, 0, 0, 2),
      event(ActionKind::receive_backward, 0, 4, 7),
      event(ActionKind::receive_forward, 0, 5, 8),
      event(ActionKind::backward, 0, 8, 10),
      event(ActionKind::forward, 1, 0, 3),
      event(ActionKind::receive_forward, 1, 1, 4),
      event(ActionKind::backward, 1, 4, 6),
      event(ActionKind::optimizer_step, 1, 6, 7),
  });
  const StepStatistics statistics = step_statistics(step, 2);
  REQUIRE(statistics.iteration.value == 10);
  REQUIRE(statistics.ranks[0] ==
          RankStatistics{.compute = {4}, .communication = {4}, .exposed_communication = {4}, .idle = {2}});
  REQUIRE(statistics.ranks[1] ==
          RankStatistics{.compute = {6}, .communication = {3}, .exposed_communication = {1}, .idle = {3}});
  // Busy in F and B: 4 and 5, mean 4.5; the longest span is rank 0's, 0–10.
  REQUIRE(statistics.bubble_makespan_fraction == Approx(0.55));
  REQUIRE(statistics.bubble_span_fraction == Approx(0.55));
}

TEST_CASE("exposed time is as uncertain as the clocks for each message that comes, and for no send") {
  Timeline timeline;
  timeline.schedule.ranks = 3;
  timeline.clock_uncertainty = {0.5};
  timeline.clock_of_rank = {0, 1, 1};
  const auto with_peer = [](ActionKind kind, int rank, int peer) {
    Event made = event(kind, rank, 1, 2);
    made.peer = peer;
    return made;
  };
  const StepTimeline step = ordered_step({
      event(ActionKind::forward, 0, 0, 1),
      with_peer(ActionKind::send_forward, 0, 1),
      with_peer(ActionKind::receive_backward, 0, 1),
      with_peer(ActionKind::reduce_tied, 0, 2),
      with_peer(ActionKind::receive_forward, 1, 0),
      with_peer(ActionKind::send_backward, 1, 0),
      with_peer(ActionKind::receive_backward, 1, 2),  // of the same clock
      with_peer(ActionKind::receive_forward, 2, 1),
      with_peer(ActionKind::send_backward, 2, 0),
      with_peer(ActionKind::reduce_tied, 2, 0),
  });
  CHECK(exposure_uncertainty(timeline, step) == std::vector<Seconds>{{1}, {0.5}, {0.5}});
  timeline.clock_uncertainty = {};
  CHECK(exposure_uncertainty(timeline, step) == std::vector<Seconds>(3));
}

TEST_CASE("a collective starts when its last rank enters it") {
  const StepTimeline step = ordered_step({
      {.action = {ActionKind::reduce_tied, 0},
       .rank = 0,
       .peer = 1,
       .start = {1},
       .end = {5},
       .waited = {},
       .bytes = {}},
      {.action = {ActionKind::reduce_tied, 3},
       .rank = 1,
       .peer = 0,
       .start = {4},
       .end = {5},
       .waited = {},
       .bytes = {}},
  });
  const StepStatistics statistics = step_statistics(step, 2);
  REQUIRE(statistics.ranks[0].communication.value == 1);
  REQUIRE(statistics.ranks[0].idle.value == 4);
  REQUIRE(statistics.ranks[1].communication.value == 1);
}

TEST_CASE("the three parts of every rank add up to the step") {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int round = 0; round < plumb::testing::cases(200); ++round) {
    std::vector<Event> events;
    for (int rank = 0; rank < 3; ++rank) {
      double now = 0;
      for (int i = 0; i < 10; ++i) {
        const double start = now + uniform(random);
        now = start + uniform(random);
        events.push_back(event(ActionKind::forward, rank, start, now));
        const double sent = 10 * uniform(random);
        events.push_back(event(ActionKind::receive_forward, rank, sent, sent + 3 * uniform(random)));
      }
    }
    const StepTimeline step = ordered_step(std::move(events));
    const StepStatistics statistics = step_statistics(step, 3);
    for (const RankStatistics& rank : statistics.ranks) {
      REQUIRE((rank.compute + rank.exposed_communication + rank.idle).value == Approx(step.duration.value));
      REQUIRE(rank.exposed_communication <= rank.communication);
    }
  }
}

TEST_CASE("an event of a rank that is not there is refused") {
  REQUIRE_THROWS_AS(step_statistics(ordered_step({event(ActionKind::forward, 2, 0, 1)}), 2), InputError);
}

}  // namespace plumb
