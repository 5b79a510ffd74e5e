// What the validator calls valid of schedules that divide a vocabulary has a graph, and the reverse: two ways to find
// out whether ranks wait for each other, one by lists and one by edges.
#include <algorithm>
#include <random>

#include "common/base/error.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/graph/closed_forms.hpp"

using namespace plumb;

namespace {

PipelineCosts unit_costs(const Schedule& schedule) {
  PipelineCosts costs =
      even_costs(all_stages(schedule), {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}, .hop = {1}});
  const JoinCost join{.latency = {1}, .alone = {1}};
  costs.vocabulary = {schedule.ranks, join, join, join, join, join};
  return costs;
}

bool has_graph(const Schedule& schedule) {
  try {
    const Schedule lowered = is_lowered(schedule) ? schedule : lower(schedule, {.optimizer = false});
    static_cast<void>(build_graph(lowered, unit_costs(lowered)));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// Of which an order within a list is no part: the graph of a list that is out of order may have none.
bool is_waiting(const ScheduleProblem& problem) {
  return problem.kind == ScheduleProblem::Kind::deadlock || problem.kind == ScheduleProblem::Kind::crossed_messages;
}

template <class Random>
Schedule any_divided(Random& random) {
  const char* name = random() % 2 == 0 ? "1f1b" : "zb-h1";
  return generate_schedule(name, {.ranks = 2 + static_cast<int>(random() % 3),
                                  .microbatches = 1 + static_cast<int>(random() % 6),
                                  .vocabulary_barriers = 1 + static_cast<int>(random() % 2)});
}

// Up to three actions go behind some of those that follow them on their rank.
template <class Random>
void shift_some(Schedule& schedule, Random& random) {
  for (std::size_t shifts = 1 + random() % 3; shifts > 0; --shifts) {
    auto& list = schedule.actions[random() % schedule.actions.size()];
    const std::size_t from = random() % list.size();
    const std::size_t to = std::min(list.size() - 1, from + random() % 6);
    const auto at = [&](std::size_t place) { return list.begin() + static_cast<std::ptrdiff_t>(place); };
    std::rotate(at(from), at(from) + 1, at(to) + 1);
  }
}

// One goes before those of its stream that come before it, on all ranks; no other leaves its place.
void join_earlier(Schedule& schedule, bool broadcasts, std::size_t number, std::size_t places) {
  for (auto& list : schedule.actions) {
    std::vector<std::ptrdiff_t> joins;
    for (std::size_t at = 0; at < list.size(); ++at) {
      const bool of_stream = (list[at].kind == ActionKind::broadcast) == broadcasts;
      if (joins_parts(list[at].kind) && of_stream) joins.push_back(static_cast<std::ptrdiff_t>(at));
    }
    const std::size_t moved = number % joins.size();
    const auto to = list.begin() + joins[moved - std::min(moved, places)];
    std::rotate(to, list.begin() + joins[moved], list.begin() + joins[moved] + 1);
  }
}

}  // namespace

TEST_CASE("a divided vocabulary: shuffled lists that are valid have a graph, and those that only wait have none") {
  std::mt19937 random(18);
  int valid = 0;
  int stuck = 0;
  for (int round = 0; round < 6000; ++round) {
    Schedule schedule = any_divided(random);
    shift_some(schedule, random);
    CAPTURE(round, schedule.name, schedule.ranks, schedule.microbatches, schedule.vocabulary_barriers);
    const std::vector<ScheduleProblem> problems = validate(schedule);
    if (problems.empty()) {
      CHECK(has_graph(schedule));
      ++valid;
    } else if (std::ranges::all_of(problems, is_waiting)) {
      INFO(problems.front().text);
      CHECK_FALSE(has_graph(schedule));
      ++stuck;
    }
  }
  CHECK(valid > 300);
  CHECK(stuck > 300);
}

TEST_CASE("a divided vocabulary: lists with their messages that are valid have a graph, wherever what joins stands") {
  std::mt19937 random(19);
  int valid = 0;
  int crossed = 0;
  int stuck = 0;
  for (int round = 0; round < 6000; ++round) {
    Schedule schedule = lower(any_divided(random), {.optimizer = false});
    if (round % 2 == 0) {
      shift_some(schedule, random);
    } else {
      join_earlier(schedule, random() % 2 == 0, random(), 1 + random() % 9);
    }
    CAPTURE(round, schedule.name, schedule.ranks, schedule.microbatches, schedule.vocabulary_barriers);
    const std::vector<ScheduleProblem> problems = validate(schedule);
    if (problems.empty()) {
      CHECK(has_graph(schedule));
      ++valid;
    } else {
      crossed += problems.front().kind == ScheduleProblem::Kind::crossed_messages;
      stuck += problems.front().kind == ScheduleProblem::Kind::deadlock;
    }
  }
  CAPTURE(valid, crossed, stuck);
  CHECK(valid > 300);
  CHECK(crossed > 100);
  CHECK(stuck > 100);
}

// What the file says is what `plumb schedule check` tells: which ranks, and where.
TEST_CASE("a divided vocabulary: two sums that two ranks join in crossed orders are named with their ranks") {
  Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 3, .vocabulary_barriers = 2});
  REQUIRE(validate(schedule).empty());
  // Rank 1 looks up its part of microbatch 2's tokens behind its F of the head of microbatch 0, not before it.
  auto& list = schedule.actions[1];
  const auto look_up = std::ranges::find(list, Action{ActionKind::forward, 5, 2});
  const auto head = std::ranges::find(list, Action{ActionKind::forward, 3, 0});
  REQUIRE(look_up < head);
  std::rotate(look_up, look_up + 1, head + 1);
  REQUIRE_FALSE(has_graph(schedule));
  const std::vector<ScheduleProblem> problems = validate(schedule);
  REQUIRE(!problems.empty());
  CHECK(problems.front().kind == ScheduleProblem::Kind::crossed_messages);
  CHECK(problems.front().ranks == std::vector<int>{0, 1});
  CHECK(problems.front().text ==
        "rank 1 joins 3ALLRED0 where rank 0 joins 4REDUCE2: all ranks must join them in one order");
}
