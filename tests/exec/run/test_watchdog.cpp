#include "exec/run/watchdog.hpp"

#include <atomic>
#include <thread>

#include "tests/catch.hpp"
#include "tests/exec/plans.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace std::chrono_literals;

TEST_CASE("the watchdog names a rank once per position that outlives its deadline") {
  std::atomic<int> hangs = 0;
  std::atomic<int> rank = -1;
  std::atomic<int> action = -1;
  std::atomic<int> stuck = 0;
  {
    Watchdog watchdog(3, {.on_hang =
                              [&](int hanging, const Position& position, Seconds since) {
                                rank = hanging;
                                action = position.action;
                                if (since.value >= 0.1) ++hangs;
                              },
                          .on_stuck = [&] { ++stuck; },
                          .grace = {0.2}});
    const auto now = Clock::now();
    watchdog.enter(0, {.step = 1, .action = 4}, now, now + 1h);
    watchdog.enter(1, {.step = 1, .action = 7}, now, now + 100ms);
    watchdog.enter(2, {.step = 1, .action = 9}, now, Clock::time_point::max());
    CHECK(watchdog.position(1) == Position{.step = 1, .action = 7});
    for (int i = 0; i < 100 && stuck == 0; ++i) std::this_thread::sleep_for(50ms);
  }
  CHECK(hangs == 1);
  CHECK(rank == 1);
  CHECK(action == 7);
  CHECK(stuck == 1);
}

TEST_CASE("positions of ranks become who waits for whom") {
  const Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 3, .microbatches = 2}});
  const Schedule lowered = lower(plan.schedule, {});
  const auto at = [&](int rank, const Action& action) {
    const auto& actions = lowered.actions[static_cast<std::size_t>(rank)];
    const auto found = std::find(actions.begin(), actions.end(), action);
    REQUIRE(found != actions.end());
    return Position{.step = 3, .action = static_cast<std::int32_t>(found - actions.begin())};
  };
  const std::string text =
      describe_waits(lowered, plan.layout,
                     {at(0, {ActionKind::receive_backward, 0, 0}), at(1, {ActionKind::forward, 1, 1}),
                      at(2, {ActionKind::receive_forward, 2, 1})});
  CHECK_THAT(text, ContainsSubstring("rank 0: step 4, 0RECV_B0 waits for rank 1's 1SEND_B0, "));
  CHECK_THAT(text, ContainsSubstring("rank 1: step 4, 1F1\n"));
  CHECK_THAT(text, ContainsSubstring("rank 2: step 4, 2RECV_F1 waits for rank 1's 1SEND_F1, 1 actions later there"));
  CHECK_THAT(text, !ContainsSubstring("cycle"));

  // The action that is waited for is the one that its rank is at.
  const std::string meeting =
      describe_waits(lowered, plan.layout,
                     {at(0, {ActionKind::receive_backward, 0, 0}), at(1, {ActionKind::send_backward, 1, 0}),
                      at(2, {ActionKind::optimizer_step, 2, no_microbatch})});
  CHECK_THAT(meeting, ContainsSubstring("0RECV_B0 waits for rank 1's 1SEND_B0, which it is at\n"));

  // What is on its way, or lost with a rank that ended, makes no cycle.
  const std::string sent = describe_waits(lowered, plan.layout,
                                          {at(0, {ActionKind::receive_backward, 0, 0}),
                                           at(1, {ActionKind::receive_forward, 1, 1}),
                                           {.step = 2, .action = Position::after}});
  CHECK_THAT(sent, ContainsSubstring("1RECV_F1 waits for rank 0's 0SEND_F1, which is done there"));
  CHECK_THAT(sent, ContainsSubstring("rank 2: after step 3"));
  CHECK_THAT(sent, !ContainsSubstring("cycle"));

  // Rank 0 wants its first gradient before it sends the second activation, which rank 1 wants first.
  Schedule crossed = lowered;
  auto& list = crossed.actions[0];
  const auto second = std::find(list.begin(), list.end(), Action{ActionKind::send_forward, 0, 1});
  const auto gradient = std::find(list.begin(), list.end(), Action{ActionKind::receive_backward, 0, 0});
  std::rotate(second, gradient, gradient + 1);
  const auto place = static_cast<std::int32_t>(second - list.begin());
  const std::string cycle = describe_waits(crossed, plan.layout,
                                           {{.step = 3, .action = place},
                                            at(1, {ActionKind::receive_forward, 1, 1}),
                                            {.step = 2, .action = Position::after}});
  CHECK_THAT(cycle, ContainsSubstring("1RECV_F1 waits for rank 0's 0SEND_F1, 1 actions later there"));
  CHECK_THAT(cycle, ContainsSubstring("a cycle of waits: rank 0 -> 1 -> 0"));
}

TEST_CASE("steps are counted from 1, and those of the warm-up apart") {
  const Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 1, .microbatches = 2}});
  const Schedule lowered = lower(plan.schedule, {});
  const auto named = [&](const Position& position) { return describe(position, lowered, 0, 2); };
  CHECK(named({.step = 0}) == "before warm-up step 1");
  CHECK(named({.step = 1, .action = 0}) == "warm-up step 2, 0F0");
  CHECK(named({.step = 2, .action = 1}) == "step 1, 0F1");
  CHECK(named({.step = 3, .action = Position::after}) == "after step 2");
  CHECK_THAT(describe_waits(lowered, plan.layout, {{.step = 1, .action = 0}}, 1),
             ContainsSubstring("rank 0: step 1, 0F0"));
}

TEST_CASE("a rank of a tensor group waits inside its action for those that have not come to it") {
  Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 1, .microbatches = 4}});
  plan.layout.tensor.degree = 3;
  const Schedule lowered = lowered_schedule(plan);
  const std::string text = describe_waits(
      lowered, plan.layout, {{.step = 1, .action = 2}, {.step = 1, .action = 1}, {.step = 1, .action = 2}});
  CHECK_THAT(text, ContainsSubstring("rank 0: step 2, 0F2 waits for rank 1's 0F2, 1 actions later there"));
  CHECK_THAT(text, ContainsSubstring("rank 1: step 2, 0F1\n"));
  CHECK_THAT(text, ContainsSubstring("rank 2: step 2, 0F2 waits for rank 1's 0F2"));
}

// Two pipelines of two ranks; by default data is nested inside the pipeline: lanes are ranks 0, 2 and 1, 3.
TEST_CASE("waits stay in a rank's own lane, but for sums over all of them") {
  Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 2, .microbatches = 2}});
  plan.layout.data.degree = 2;
  const Schedule lowered = lowered_schedule(plan);
  const auto at = [&](int place, const Action& action) {
    const auto& actions = lowered.actions[static_cast<std::size_t>(place)];
    const auto found = std::find(actions.begin(), actions.end(), action);
    REQUIRE(found != actions.end());
    return Position{.step = 1, .action = static_cast<std::int32_t>(found - actions.begin())};
  };
  const Action sum{ActionKind::reduce_gradient, 0, no_microbatch};
  const std::string text =
      describe_waits(lowered, plan.layout,
                     {at(0, sum), at(0, {ActionKind::receive_backward, 0, 1}),
                      at(1, {ActionKind::reduce_gradient, 1, no_microbatch}), at(1, {ActionKind::forward, 1, 1})});
  CHECK_THAT(text, ContainsSubstring("rank 0: step 2, 0REDUCE_GRAD waits for rank 1's 0REDUCE_GRAD, "));
  CHECK_THAT(text, ContainsSubstring("rank 1: step 2, 0RECV_B1 waits for rank 3's 1SEND_B1, "));
  CHECK_THAT(text, ContainsSubstring("rank 2: step 2, 1REDUCE_GRAD waits for rank 3's 1REDUCE_GRAD, "));
  CHECK_THAT(text, ContainsSubstring("rank 3: step 2, 1F1\n"));
  // Once all have come it is on its way.
  const std::string all = describe_waits(
      lowered, plan.layout,
      {at(0, sum), at(0, sum), {.step = 1, .action = Position::after}, {.step = 1, .action = Position::after}});
  CHECK_THAT(all, ContainsSubstring("rank 0: step 2, 0REDUCE_GRAD\n"));
}

// Two ranks: stages 0 and 1, parts of the head 2 and 3, of the embedding 4 and 5.
TEST_CASE("a rank that waits for the parts of a vocabulary names who has not given its own, and where that stands") {
  const auto lists = [](int barriers) {
    return lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 3, .vocabulary_barriers = barriers}), {});
  };
  const Plan plan = emulated_plan({.schedule = "1f1b", .shape = {.ranks = 2, .microbatches = 3}});
  const Schedule one = lists(1);
  const Schedule two = lists(2);
  const auto at = [](const Schedule& lowered, int rank, const Action& action) {
    const auto& actions = lowered.actions[static_cast<std::size_t>(rank)];
    const auto found = std::find(actions.begin(), actions.end(), action);
    REQUIRE(found != actions.end());
    return Position{.step = 1, .action = static_cast<std::int32_t>(found - actions.begin())};
  };
  const auto waits = [&](const Schedule& lowered, const Action& of_first, const Action& of_second) {
    return describe_waits(lowered, plan.layout, {at(lowered, 0, of_first), at(lowered, 1, of_second)});
  };
  const auto forward = [](int stage, int k) { return Action{ActionKind::forward, stage, k}; };
  const auto input_gradient = [](int stage, int k) { return Action{ActionKind::input_gradient, stage, k}; };
  const auto backward = [](int stage, int k) { return Action{ActionKind::backward, stage, k}; };
  // BCAST: from the last stage, from the first.
  CHECK_THAT(waits(one, forward(2, 0), forward(1, 0)),
             ContainsSubstring("rank 0: step 2, 2F0 waits for rank 1's 1F0, which it is at"));
  CHECK_THAT(
      waits(one, forward(0, 2), backward(5, 0)),
      ContainsSubstring("rank 1: step 2, 5B0 waits for rank 0's 0B0, ") && ContainsSubstring(" actions later there"));
  // ALLRED: from all parts of the head, S of one barrier and of two.
  CHECK_THAT(waits(one, {ActionKind::weight_gradient, 2, 0}, input_gradient(3, 0)),
             ContainsSubstring("2W0 waits for rank 1's 3I0, which it is at"));
  CHECK_THAT(waits(two, backward(2, 0), forward(3, 0)),
             ContainsSubstring("2B0 waits for rank 1's 3F0, which it is at"));
  // REDUCE: to the first stage, and to the last.
  CHECK_THAT(waits(one, forward(0, 0), forward(5, 0)), ContainsSubstring("0F0 waits for rank 1's 5F0, which it is at"));
  CHECK_THAT(waits(one, input_gradient(2, 0), backward(1, 0)),
             ContainsSubstring("1B0 waits for rank 0's 2I0, which it is at"));
  CHECK_THAT(waits(two, backward(2, 0), backward(1, 0)),
             ContainsSubstring("1B0 waits for rank 0's 2B0, which it is at"));
  // Behind all computing for all of them.
  CHECK_THAT(waits(one, {ActionKind::optimizer_step, 0, no_microbatch}, forward(1, 2)),
             ContainsSubstring("0STEP waits for rank 1's 1F2, which it is at"));
  // What all have given is on its way.
  CHECK_THAT(waits(one, forward(0, 0), forward(1, 0)), ContainsSubstring("rank 0: step 2, 0F0\n"));

  // A line goes in its order: the embedding's sum comes behind statistics that rank 1 has not given.
  Schedule line = one;
  line.actions = {{{ActionKind::all_reduce, 2, 0}, {ActionKind::reduce, 4, 1}, forward(0, 1)},
                  {forward(5, 1), input_gradient(3, 0)}};
  CHECK_THAT(waits(line, forward(0, 1), input_gradient(3, 0)),
             ContainsSubstring("0F1 waits for rank 1's 3I0, which it is at"));

  // Rank 0 wants what is broadcast before it sends what that is made of.
  Schedule crossed = one;
  crossed.actions = {{forward(2, 0), {ActionKind::send_forward, 0, 0}},
                     {{ActionKind::receive_forward, 1, 0}, forward(1, 0)}};
  crossed.actions[0].insert(crossed.actions[0].begin(), {ActionKind::broadcast, 2, 0});
  CHECK_THAT(waits(crossed, forward(2, 0), {ActionKind::receive_forward, 1, 0}),
             ContainsSubstring("a cycle of waits: rank 0 -> 1 -> 0"));
}
