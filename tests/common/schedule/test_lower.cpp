#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/random_schedule.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

bool sends_activation(ActionKind kind) { return kind == ActionKind::send_forward; }

// (from, to, is an activation) → the messages (receiving stage, microbatch) in the order of one side's list.
using Queues = std::map<std::tuple<int, int, bool>, std::vector<std::pair<int, int>>>;

Queues queues_of(const Schedule& lowered, bool sending) {
  Queues queues;
  for (int rank = 0; rank < lowered.ranks; ++rank) {
    for (const Action& action : lowered.actions[rank]) {
      if (sending ? !is_send(action.kind) : !is_receive(action.kind)) continue;
      const bool activation = sending ? sends_activation(action.kind) : action.kind == ActionKind::receive_forward;
      // The neighbour: an activation comes from stage − 1, a gradient from stage + 1.
      const int towards = (sending == activation) ? action.stage + 1 : action.stage - 1;
      const int other = lowered.rank_of_stage.at(towards);
      const int received_by = sending ? towards : action.stage;
      const auto key = sending ? std::tuple{rank, other, activation} : std::tuple{other, rank, activation};
      queues[key].emplace_back(received_by, action.microbatch);
    }
  }
  return queues;
}

std::vector<Action> only_compute(const std::vector<Action>& list) {
  std::vector<Action> compute;
  std::ranges::copy_if(list, std::back_inserter(compute), [](const Action& a) { return is_compute(a.kind); });
  return compute;
}

// A receive is needed by what comes next to it, skipping other receives: itself or a later message of its queue.
void check_as_late_as_possible(const Schedule& lowered) {
  for (int rank = 0; rank < lowered.ranks; ++rank) {
    const auto& list = lowered.actions[rank];
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!is_receive(list[i].kind)) continue;
      std::set<std::pair<int, int>> together;  // of this queue's kind, received at this spot
      std::size_t next = i;
      for (; next < list.size() && is_receive(list[next].kind); ++next) {
        if (list[next].kind == list[i].kind) together.insert({list[next].stage, list[next].microbatch});
      }
      REQUIRE(next < list.size());
      CHECK(together.contains({list[next].stage, list[next].microbatch}));
      const bool wants_activation = list[next].kind == ActionKind::forward;
      CHECK((list[i].kind == ActionKind::receive_forward) == wants_activation);
    }
  }
}

}  // namespace

TEST_CASE("lowering keeps the compute order and pairs messages first in, first out, for random valid schedules") {
  std::mt19937 random(7);
  for (int round = 0; round < plumb::testing::cases(400); ++round) {
    const Schedule schedule = random_schedule(random);
    const Schedule lowered = lower(schedule, {});
    CAPTURE(round, schedule.ranks, schedule.microbatches, schedule.chunks);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      CHECK(only_compute(lowered.actions[rank]) == schedule.actions[rank]);
    }
    CHECK(queues_of(lowered, true) == queues_of(lowered, false));
  }
}

TEST_CASE("every message between two ranks is sent once, directly after its producer") {
  const Schedule lowered =
      lower(generate_schedule("interleaved-1f1b", {.ranks = 2, .microbatches = 4, .chunks = 2}), {});
  int sends = 0;
  for (const auto& list : lowered.actions) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!is_send(list[i].kind)) continue;
      ++sends;
      REQUIRE(i > 0);
      const ActionKind producer = sends_activation(list[i].kind) ? ActionKind::forward : ActionKind::backward;
      CHECK(list[i - 1] == Action{producer, list[i].stage, list[i].microbatch});
    }
  }
  CHECK(sends == 2 * 3 * 4);  // both directions, three boundaries, four microbatches
}

TEST_CASE("receives stand directly before what needs them") {
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
    check_as_late_as_possible(lower(generate_schedule(name, {.ranks = 4, .microbatches = 6}), {.optimizer = false}));
  }
  check_as_late_as_possible(
      lower(generate_schedule("interleaved-1f1b", {.ranks = 4, .microbatches = 8, .chunks = 2}), {.optimizer = false}));
}

TEST_CASE("lowered 1F1B on two ranks, in full") {
  const Schedule lowered = lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 2}), {.tied_embeddings = true});
  CHECK(to_text(lowered.actions[0]) == "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_TIED 0STEP");
  CHECK(to_text(lowered.actions[1]) == "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_TIED 1STEP");
}

TEST_CASE("weights are gathered before the first F of each stage, or behind all steps") {
  const Schedule schedule = generate_schedule("interleaved-1f1b", {.ranks = 2, .microbatches = 2, .chunks = 2});
  const Schedule first = lower(schedule, {.data_parallel = true, .gathering = WeightGathering::before_forward});
  CHECK(to_text(first.actions[0]) ==
        "0UNSHARD 0F0 0SEND_F0 0F1 0SEND_F1 2UNSHARD 2RECV_F0 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1 2RECV_B0 2B0 2SEND_B0 "
        "2RECV_B1 2B1 2SEND_B1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0STEP 2REDUCE_GRAD 2STEP");
  const Schedule behind = lower(schedule, {.data_parallel = true, .gathering = WeightGathering::behind_steps});
  CHECK(to_text(behind.actions[1]).ends_with(" 1STEP 3REDUCE_GRAD 3STEP 1UNSHARD 3UNSHARD"));
  for (const WeightGathering gathering : {WeightGathering::before_forward, WeightGathering::behind_steps}) {
    for (const Schedule& one : {first, behind}) CHECK(validate(one).empty());
    const Schedule lowered = lower(schedule, {.gathering = gathering});
    for (const std::vector<Action>& list : lowered.actions) CHECK(gathering_of(list) == gathering);
    CHECK(without_messages(lowered) == schedule);
  }
  CHECK(gathering_of(lower(schedule, {}).actions[0]) == WeightGathering::none);
}

TEST_CASE("weights that the second of an overlapped pair needs are gathered before the pair") {
  Schedule schedule{.name = "by hand",
                    .ranks = 1,
                    .microbatches = 1,
                    .chunks = 2,
                    .rank_of_stage = {0, 0},
                    .actions = {parse_actions("0F0 1F0 1B0 0B0")}};
  schedule.overlapped = {{parse_action("0F0"), parse_action("1F0")}};
  const Schedule lowered = lower(schedule, {.gathering = WeightGathering::before_forward});
  CHECK(to_text(lowered.actions[0]) == "0UNSHARD 1UNSHARD 0F0 1F0 1B0 0B0 0STEP 1STEP");
}

TEST_CASE("a stage that recomputes needs its activation at F and its gradient at B, not at R") {
  const Schedule schedule = with_recompute(generate_schedule("1f1b", {.ranks = 2, .microbatches = 1}), {true, true});
  const Schedule lowered = lower(schedule, {.optimizer = false});
  CHECK(to_text(lowered.actions[0]) == "0F0 0SEND_F0 0R0 0RECV_B0 0B0");
  CHECK(to_text(lowered.actions[1]) == "1RECV_F0 1F0 1R0 1B0 1SEND_B0");
  CHECK(with_recompute(schedule, {true, true}) == schedule);
  CHECK_THROWS_AS(with_recompute(schedule, {true}), InputError);
}

TEST_CASE("tied stages step last on their ranks, and share nothing on one rank") {
  const Schedule lowered = lower(generate_schedule("interleaved-1f1b", {.ranks = 2, .microbatches = 2, .chunks = 2}),
                                 {.tied_embeddings = true});
  CHECK(to_text(lowered.actions[0]).ends_with(" 2STEP 0REDUCE_TIED 0STEP"));
  CHECK(to_text(lowered.actions[1]).ends_with(" 1STEP 3REDUCE_TIED 3STEP"));
  const Schedule alone = lower(generate_schedule("gpipe", {.ranks = 1, .microbatches = 1}), {.tied_embeddings = true});
  CHECK(to_text(alone.actions[0]) == "0F0 0B0 0STEP");
}

TEST_CASE("tied embeddings of two replicas that run in one direction are refused: no rank has both tables") {
  // Nothing would sum the gradients of stage 0's table and stage 1's.
  const Schedule schedule{.name = "by hand",
                          .ranks = 4,
                          .microbatches = 2,
                          .chunks = 1,
                          .rank_of_stage = {0, 1},
                          .second_rank_of_stage = {2, 3},
                          .actions = {parse_actions("0F0 0B0"), parse_actions("1F0 1B0"), parse_actions("0F1 0B1"),
                                      parse_actions("1F1 1B1")}};
  CHECK_NOTHROW(lower(schedule, {}));
  CHECK_THROWS_AS(lower(schedule, {.tied_embeddings = true}), InputError);
  CHECK_NOTHROW(lower(generate_schedule("chimera", {.ranks = 4, .microbatches = 4}), {.tied_embeddings = true}));
}

TEST_CASE("a receive moves before an earlier consumer of a later message") {
  // Rank 0 sends microbatch 0 first, rank 1 consumes microbatch 1 first.
  const Schedule schedule{.name = "by hand",
                          .ranks = 2,
                          .microbatches = 2,
                          .chunks = 1,
                          .rank_of_stage = {0, 1},
                          .actions = {parse_actions("0F0 0F1 0B1 0B0"), parse_actions("1F1 1F0 1B1 1B0")}};
  const Schedule lowered = lower(schedule, {.optimizer = false});
  CHECK(to_text(lowered.actions[1]) == "1RECV_F0 1RECV_F1 1F1 1F0 1B1 1SEND_B1 1B0 1SEND_B0");
}

TEST_CASE("unused messages are received at the end, where they delay nothing") {
  Schedule schedule = generate_schedule("gpipe", {.ranks = 2, .microbatches = 2});
  schedule.actions = {parse_actions("0F0 0F1 0B0"), parse_actions("1F0 1B0")};
  const Schedule lowered = lower(schedule, {.optimizer = false});
  CHECK(to_text(lowered.actions[0]) == "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0");
  CHECK(to_text(lowered.actions[1]) == "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1");
}

TEST_CASE("lowering twice, or a stage that does not exist, is refused") {
  Schedule schedule = generate_schedule("gpipe", {.ranks = 2, .microbatches = 1});
  CHECK_THROWS_WITH(lower(lower(schedule, {}), {}), ContainsSubstring("lowered already"));
  schedule.actions[1][0].stage = 2;
  CHECK_THROWS_WITH(lower(schedule, {}), ContainsSubstring("no such stage"));
}
