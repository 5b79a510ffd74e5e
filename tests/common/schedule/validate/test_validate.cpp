// The validator against mutations of valid schedules: each must be named with its kind.
#include "common/schedule/validate/validate.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/naive_pipeline.hpp"
#include "tests/common/schedule/random_schedule.hpp"

using namespace plumb;
using Kind = ScheduleProblem::Kind;

namespace {

bool names(const Schedule& schedule, Kind kind, const Action& action) {
  return std::ranges::any_of(validate(schedule), [&](const ScheduleProblem& problem) {
    return problem.kind == kind && std::ranges::find(problem.actions, action) != problem.actions.end();
  });
}

bool only(const Schedule& schedule, Kind kind) {
  const auto problems = validate(schedule);
  return problems.size() == 1 && problems.front().kind == kind;
}

std::vector<Schedule> samples() {
  std::vector<Schedule> all;
  for (const int p : {1, 2, 4}) {
    for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
      all.push_back(generate_schedule(name, {.ranks = p, .microbatches = 5}));
    }
    all.push_back(generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = 2 * p, .chunks = 2}));
  }
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) all.push_back(random_schedule(random));
  return all;
}

std::vector<Schedule> lowered_samples() {
  std::vector<Schedule> all;
  for (const Schedule& schedule : samples()) all.push_back(lower(schedule, {.tied_embeddings = true}));
  return all;
}

// Whether the problem "`after` stands before `before`, which it needs" is named, and not one about other actions.
bool crosses(const Schedule& schedule, const Action& after, const Action& before) {
  return std::ranges::any_of(validate(schedule), [&](const ScheduleProblem& problem) {
    return problem.kind == Kind::crossed && problem.actions == std::vector<Action>{after, before};
  });
}

// The B or I of a stage in this list.
Action gradient_in(const std::vector<Action>& list, int stage, int microbatch) {
  const Action whole{ActionKind::backward, stage, microbatch};
  const bool is_whole = std::ranges::find(list, whole) != list.end();
  return is_whole ? whole : Action{ActionKind::input_gradient, stage, microbatch};
}

Schedule two_ranks(const char* first, const char* second, int microbatches = 2) {
  return {.name = "by hand",
          .ranks = 2,
          .microbatches = microbatches,
          .chunks = 1,
          .rank_of_stage = {0, 1},
          .actions = {parse_actions(first), parse_actions(second)}};
}

}  // namespace

// arXiv 2411.05288, algorithms 1 and 2: T is B where two barriers lie between it and the last stage's F, W with one.
TEST_CASE("a part of a vocabulary has the passes of its number of barriers") {
  for (const int barriers : {1, 2}) {
    Schedule schedule = generate_schedule("1f1b", {.ranks = 3, .microbatches = 4, .vocabulary_barriers = barriers});
    REQUIRE(validate(schedule).empty());
    schedule.vocabulary_barriers = 3 - barriers;
    const std::vector<ScheduleProblem> problems = validate(schedule);
    REQUIRE(!problems.empty());
    CAPTURE(barriers, problems.front().text);
    CHECK(problems.front().kind == ScheduleProblem::Kind::misplaced);
    CHECK_THAT(problems.front().text, ContainsSubstring("of a part of the vocabulary, which has") &&
                                          ContainsSubstring(barriers == 1 ? "has B here" : "has I and W here"));
  }
}

TEST_CASE("generated and random valid schedules have no problem, compute only and lowered") {
  for (const auto& all : {samples(), lowered_samples()}) {
    for (const Schedule& schedule : all) {
      CAPTURE(schedule.name, schedule.ranks, schedule.microbatches);
      CHECK(validate(schedule).empty());
      CHECK_NOTHROW(require_valid(schedule));
    }
  }
}

TEST_CASE("a dropped compute action is missing, whichever it is") {
  for (const auto& all : {samples(), lowered_samples()}) {
    for (const Schedule& schedule : all) {
      for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
        for (std::size_t i = 0; i < schedule.actions[rank].size(); i += 3) {
          const Action dropped = schedule.actions[rank][i];
          if (!is_compute(dropped.kind) || dropped.kind == ActionKind::recompute) continue;
          Schedule mutated = schedule;
          mutated.actions[rank].erase(mutated.actions[rank].begin() + static_cast<std::ptrdiff_t>(i));
          CAPTURE(schedule.name, to_string(dropped));
          CHECK(names(mutated, Kind::missing, dropped));
        }
      }
    }
  }
}

TEST_CASE("a repeated action is a duplicate, and so is B beside I") {
  for (const auto& all : {samples(), lowered_samples()}) {
    for (const Schedule& schedule : all) {
      for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
        const Action repeated = schedule.actions[rank][schedule.actions[rank].size() / 2];
        Schedule mutated = schedule;
        mutated.actions[rank].push_back(repeated);
        CAPTURE(schedule.name, to_string(repeated));
        CHECK(names(mutated, Kind::duplicate, repeated));
      }
    }
  }
  const Schedule both = two_ranks("0F0 0B0 0W0", "1F0 1B0", 1);
  CHECK(only(both, Kind::duplicate));
}

TEST_CASE("an action on a foreign rank is misplaced") {
  for (const auto& all : {samples(), lowered_samples()}) {
    for (const Schedule& schedule : all) {
      if (schedule.ranks == 1) continue;
      Schedule mutated = schedule;
      const Action moved = mutated.actions[0].front();
      mutated.actions[0].erase(mutated.actions[0].begin());
      mutated.actions[1].insert(mutated.actions[1].begin(), moved);
      CHECK(names(mutated, Kind::misplaced, moved));
    }
  }
}

TEST_CASE("a backward before its forward, and a W before its I, are crossed") {
  for (const auto& all : {samples(), lowered_samples()}) {
    for (const Schedule& schedule : all) {
      for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
        Schedule mutated = schedule;
        auto& list = mutated.actions[rank];
        const auto last = std::find_if(list.rbegin(), list.rend(), [](const Action& a) {
          return a.kind == ActionKind::backward || a.kind == ActionKind::weight_gradient;
        });
        const Action needed{last->kind == ActionKind::backward ? ActionKind::forward : ActionKind::input_gradient,
                            last->stage, last->microbatch};
        std::iter_swap(std::ranges::find(list, needed), std::ranges::find(list, *last));
        CAPTURE(schedule.name, to_string(needed));
        CHECK(names(mutated, Kind::crossed, needed));
      }
    }
  }
}

TEST_CASE("a recompute before its forward, or behind its backward, is crossed") {
  for (const char* name : {"1f1b", "zb-h1"}) {
    const Schedule valid =
        with_recompute(generate_schedule(name, {.ranks = 2, .microbatches = 3}), std::vector<bool>(2, true));
    REQUIRE(validate(valid).empty());
    for (int stage = 0; stage < 2; ++stage) {
      for (int k = 0; k < valid.microbatches; ++k) {
        const Action again{ActionKind::recompute, stage, k};
        const Action forward{ActionKind::forward, stage, k};
        const auto rank = static_cast<std::size_t>(stage);
        const Action gradient = gradient_in(valid.actions[rank], stage, k);
        const auto swapped = [&](const Action& other) {
          Schedule mutated = valid;
          auto& list = mutated.actions[rank];
          std::iter_swap(std::ranges::find(list, again), std::ranges::find(list, other));
          return mutated;
        };
        CAPTURE(name, to_string(again));
        CHECK(crosses(swapped(gradient), gradient, again));
        CHECK(crosses(swapped(forward), again, forward));
      }
    }
  }
}

// In time the two do not wait for each other, so only the order of the list tells.
TEST_CASE("a send before what it sends, and a receive behind what needs it, are crossed") {
  int swapped = 0;
  for (const Schedule& schedule : lowered_samples()) {
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      const std::vector<Action>& valid = schedule.actions[rank];
      for (std::size_t i = 0; i < valid.size(); i += 3) {
        const Action message = valid[i];
        if (!is_send(message.kind) && !is_receive(message.kind)) continue;
        const Action compute = goes_forward(message.kind)
                                   ? Action{ActionKind::forward, message.stage, message.microbatch}
                                   : gradient_in(valid, message.stage, message.microbatch);
        Schedule mutated = schedule;
        auto& list = mutated.actions[rank];
        std::iter_swap(std::ranges::find(list, message), std::ranges::find(list, compute));
        CAPTURE(schedule.name, to_string(message));
        CHECK((is_send(message.kind) ? crosses(mutated, message, compute) : crosses(mutated, compute, message)));
        ++swapped;
      }
    }
  }
  CHECK(swapped > 100);
}

TEST_CASE("a step before a weight gradient of its stage is crossed") {
  for (const Schedule& schedule : lowered_samples()) {
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      Schedule mutated = schedule;
      auto& list = mutated.actions[rank];
      const auto step =
          std::ranges::find_if(list, [](const Action& a) { return a.kind == ActionKind::optimizer_step; });
      REQUIRE(step != list.end());
      const Action early = *step;
      std::rotate(list.begin(), step, step + 1);
      for (int k = 0; k < schedule.microbatches; ++k) {
        Action last = gradient_in(list, early.stage, k);
        if (last.kind == ActionKind::input_gradient) last.kind = ActionKind::weight_gradient;
        CAPTURE(schedule.name, to_string(last));
        CHECK(crosses(mutated, early, last));
      }
    }
  }
}

TEST_CASE("a dropped send or receive is an unmatched message, both dropped a missing one") {
  for (const Schedule& schedule : lowered_samples()) {
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
        const Action dropped = schedule.actions[rank][i];
        if (!is_send(dropped.kind) && !is_receive(dropped.kind)) continue;
        Schedule mutated = schedule;
        mutated.actions[rank].erase(mutated.actions[rank].begin() + static_cast<std::ptrdiff_t>(i));
        CAPTURE(schedule.name, to_string(dropped));
        CHECK(only(mutated, Kind::unmatched_message));
        CHECK(names(mutated, Kind::unmatched_message, dropped));
        if (dropped.kind != ActionKind::send_forward) continue;
        const Action receive{ActionKind::receive_forward, dropped.stage + 1, dropped.microbatch};
        std::erase(mutated.actions[static_cast<std::size_t>(mutated.rank_of_stage[receive.stage])], receive);
        CHECK(only(mutated, Kind::missing));
        CHECK(names(mutated, Kind::missing, receive));
      }
    }
  }
}

TEST_CASE("swapped receives of one queue are crossed messages") {
  int swapped = 0;
  for (const Schedule& schedule : lowered_samples()) {
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      Schedule mutated = schedule;
      auto& list = mutated.actions[rank];
      const auto first = std::ranges::find_if(list, [](const Action& a) { return is_receive(a.kind); });
      if (first == list.end()) continue;
      const auto second = std::find_if(
          first + 1, list.end(), [&](const Action& a) { return a.kind == first->kind && a.stage == first->stage; });
      if (second == list.end()) continue;
      const Action action = *second;  // comes where another is sent first
      std::iter_swap(first, second);
      CAPTURE(schedule.name, to_string(action));
      CHECK(names(mutated, Kind::crossed_messages, action));
      ++swapped;
    }
  }
  CHECK(swapped > 50);
}

TEST_CASE("numbers out of range and kinds that are not built are malformed") {
  const Schedule valid = generate_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  for (const char* text : {"2F0", "0F2", "0RESHARD", "0STEP1", "1SEND_F0", "0RECV_F0"}) {
    Schedule mutated = valid;
    mutated.actions[0].push_back(parse_action(text));
    CAPTURE(text);
    CHECK(names(mutated, Kind::malformed, parse_action(text)));
  }
  // Only the first and the last stage have the embedding.
  const Schedule three = lower(generate_schedule("1f1b", {.ranks = 3, .microbatches = 2}), {.tied_embeddings = true});
  Schedule middle = three;
  middle.actions[1].push_back(parse_action("1REDUCE_TIED"));
  CHECK(validate(three).empty());
  CHECK(only(middle, Kind::malformed));
  Schedule lists = valid;
  lists.actions.pop_back();
  CHECK(only(lists, Kind::malformed));
  Schedule placement = valid;
  placement.rank_of_stage[1] = 2;
  CHECK(only(placement, Kind::malformed));
  Schedule huge = valid;
  huge.microbatches = 2147483647;
  CHECK(only(huge, Kind::malformed));
  CHECK(only(Schedule{}, Kind::malformed));
}

TEST_CASE("ranks that wait for each other are a deadlock, shown as its cycle") {
  // Rank 0 wants a gradient before it sends what rank 1 needs first.
  const auto problems = validate(two_ranks("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].kind == Kind::deadlock);
  CHECK(problems[0].ranks == std::vector<int>{0, 1});
  CHECK(problems[0].actions == parse_actions("0B0 1F1"));
  CHECK(problems[0].text == "deadlock: rank 0 waits at 0B0 for 1B0 of rank 1, rank 1 waits at 1F1 for 0F1 of rank 0");
  // The same with its messages written out.
  const auto lowered = validate(two_ranks("0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1",
                                          "1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F0 1F0 1B0 1SEND_B0"));
  CHECK(std::ranges::any_of(lowered, [](const auto& p) {
    return p.kind == Kind::deadlock && p.actions == parse_actions("0RECV_B0 1RECV_F1");
  }));
}

TEST_CASE("a tied reduction needs both its ranks, behind their gradients and before their steps") {
  const Schedule valid = lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 1}), {.tied_embeddings = true});
  const Action first{ActionKind::reduce_tied, 0, no_microbatch};
  Schedule dropped = valid;
  std::erase(dropped.actions[0], first);
  CHECK(names(dropped, Kind::missing, first));
  Schedule late = valid;
  std::iter_swap(late.actions[0].end() - 1, late.actions[0].end() - 2);
  CHECK(names(late, Kind::crossed, first));
  Schedule early = valid;
  std::rotate(early.actions[0].begin(), early.actions[0].end() - 2, early.actions[0].end() - 1);
  CHECK(names(early, Kind::crossed, first));
  // Rank 0 enters the reduction before it sends the activation that rank 1 waits for.
  CHECK(std::ranges::any_of(validate(early), [](const auto& p) { return p.kind == Kind::deadlock; }));
  Schedule no_step = valid;
  no_step.actions[1].pop_back();
  CHECK(names(no_step, Kind::missing, Action{ActionKind::optimizer_step, 1, no_microbatch}));
}

TEST_CASE("a shuffled schedule is valid exactly when the naive evaluation comes to its end") {
  std::mt19937 random(11);
  int stuck = 0, fine = 0;
  for (int round = 0; round < 3000; ++round) {
    Schedule schedule = random_schedule(random);
    auto& list = schedule.actions[random() % schedule.actions.size()];
    for (int swaps = 0; swaps < 2; ++swaps) std::swap(list[random() % list.size()], list[random() % list.size()]);
    // Recompute counts as unneeded in the naive evaluation, so that it may stand behind its backward there.
    const bool recomputes = std::ranges::any_of(list, [](const Action& a) { return a.kind == ActionKind::recompute; });
    if (recomputes) continue;
    const bool ends = naive_run(schedule, even_ticks(stages(schedule), 1, 1, 1)).makespan >= 0;
    CAPTURE(round);
    CHECK(validate(schedule).empty() == ends);
    ++(ends ? fine : stuck);
  }
  CHECK(fine > 100);
  CHECK(stuck > 100);
}

TEST_CASE("the first problem is thrown, with the number of others") {
  Schedule schedule = generate_schedule("zb-h1", {.ranks = 2, .microbatches = 2});
  std::erase(schedule.actions[0], parse_action("0W1"));
  std::erase(schedule.actions[1], parse_action("1F1"));
  CHECK_THROWS_AS(require_valid(schedule), InputError);
  CHECK_THROWS_WITH(require_valid(schedule), ContainsSubstring("schedule zb-h1: rank 0: 0W1 is missing") &&
                                                 ContainsSubstring("1 more problem behind it"));
}
