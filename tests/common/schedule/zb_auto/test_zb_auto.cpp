// ZB auto: what every schedule of it must keep, the closed forms that it reaches, what it refuses.
#include "common/schedule/zb_auto/zb_auto.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/zb_auto/auto_problems.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

// On each stage F, I and W each go in the order of the microbatches.
bool in_order(const Schedule& schedule) {
  for (const auto& list : schedule.actions) {
    std::map<std::pair<ActionKind, int>, int> next;
    for (const Action& action : list) {
      if (action.microbatch != next[{action.kind, action.stage}]++) return false;
    }
  }
  return true;
}

bool only_computes(const Schedule& schedule) {
  return std::ranges::all_of(schedule.actions, [](const auto& list) {
    return std::ranges::all_of(list, [](const Action& action) { return is_compute(action.kind); });
  });
}

// The shortest makespan of a fixed schedule of this placement that fits; a large number if none does.
int best_fixed(const AutoProblem& problem) {
  int best = 1 << 30;
  const auto stages = static_cast<int>(problem.stages.size());
  if (stages % problem.ranks != 0) return best;
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (entry.uses_times || entry.updates_within || entry.uses_slices) continue;
    try {
      const Schedule schedule = entry.generate(
          {.ranks = problem.ranks, .microbatches = problem.microbatches, .chunks = stages / problem.ranks});
      if (schedule.rank_of_stage != problem.rank_of_stage || replicas(schedule) != 1 || !only_computes(schedule))
        continue;
      if (within_limits(problem, schedule)) best = std::min(best, naive_run(problem, schedule).makespan);
    } catch (const InputError&) {
      continue;
    }
  }
  return best;
}

void check_all(const AutoProblem& problem) {
  const Schedule schedule = schedule_zb_auto(problem);
  CHECK(validate(schedule).empty());
  CHECK(in_order(schedule));
  CHECK(within_limits(problem, schedule));
  const NaiveResult result = naive_run(problem, schedule);
  CAPTURE(result.makespan, best_fixed(problem), zb_auto_bound(problem).value);
  CHECK(result.makespan <= best_fixed(problem));
  CHECK(result.makespan >= zb_auto_bound(problem).value - 1e-9);
}

void limit_to_quarters(AutoProblem& problem, int least, int most, std::mt19937& random) {
  for (int r = 0; r < problem.ranks; ++r) {
    problem.limit.push_back(share_of(problem, r) * std::uniform_int_distribution<int>(least, most)(random) / 4);
  }
}

std::vector<Bytes> limits(int ranks, int bytes) {
  return std::vector<Bytes>(static_cast<std::size_t>(ranks), Bytes{bytes});
}

StageLoad times(int forward, int input_gradient, int weight_gradient) {
  return {.forward = {static_cast<double>(forward)},
          .input_gradient = {static_cast<double>(input_gradient)},
          .weight_gradient = {static_cast<double>(weight_gradient)},
          .kept = {1},
          .kept_for_weight = {1}};
}

}  // namespace

TEST_CASE("ZB auto on random uneven stages: valid, in order, within the limits, never worse than a fixed schedule") {
  std::mt19937 random(1);
  for (int round = 0; round < plumb::testing::cases(240); ++round) {
    const int p = std::uniform_int_distribution<int>(1, 5)(random);
    const int m = std::uniform_int_distribution<int>(1, 9)(random);
    const int kind = round % 4;
    std::vector<int> placement = loop_placement(p, 1);
    if (kind == 1) placement = wave_placement(p, 2);
    if (kind == 2) placement = loop_placement(p, 2);
    if (kind == 3) {  // any placement, ranks with any numbers of stages, perhaps none
      placement.resize(static_cast<std::size_t>(std::uniform_int_distribution<int>(1, 2 * p)(random)));
      for (int& rank : placement) rank = std::uniform_int_distribution<int>(0, p - 1)(random);
    }
    CAPTURE(round, p, m, kind);
    AutoProblem problem = random_problem({.ranks = p,
                                          .microbatches = m,
                                          .rank_of_stage = placement,
                                          .hop = std::uniform_int_distribution<int>(-4, 5)(random) < 0 ? 0 : 3},
                                         random);
    if (round % 5 != 0) limit_to_quarters(problem, 4, 4 * std::max(2, p + 2), random);
    check_all(problem);
  }
}

TEST_CASE("ZB auto with room for one microbatch only: one after the other, and no deadlock") {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    const int p = std::uniform_int_distribution<int>(2, 4)(random);
    const int v = 1 + round % 3;
    CAPTURE(round, p, v);
    AutoProblem problem = random_problem(
        {.ranks = p, .microbatches = 4, .rank_of_stage = round % 2 == 0 ? loop_placement(p, v) : wave_placement(p, v)},
        random);
    limit_to_quarters(problem, 4, 4, random);
    check_all(problem);
  }
}

TEST_CASE("ZB auto where W keeps more than F did") {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    AutoProblem problem =
        random_problem({.ranks = 3, .microbatches = 5, .rank_of_stage = wave_placement(3, 2)}, random);
    for (StageLoad& load : problem.stages) load.kept_for_weight = load.kept + Bytes{3};
    limit_to_quarters(problem, 8, 16, random);
    for (Bytes& limit : problem.limit) limit += Bytes{3};
    CAPTURE(round);
    check_all(problem);
  }
}

TEST_CASE("ZB auto on even stages reaches ZB-H1 with p in memory and ZB-H2 with 2p−1") {
  for (const int p : {2, 3, 4, 6, 8}) {
    for (const auto& [f, i, w] : {std::array{4, 4, 4}, std::array{5, 7, 3}, std::array{6, 5, 2}}) {
      const int m = 2 * p + 3;
      CAPTURE(p, f, i, w);
      AutoProblem problem =
          even_problem({.ranks = p, .microbatches = m, .rank_of_stage = loop_placement(p, 1)}, times(f, i, w));
      problem.limit = limits(p, p);
      CHECK(naive_run(problem, schedule_zb_auto(problem)).makespan <= m * (f + i + w) + (p - 1) * (f + i - w));
      problem.limit = limits(p, 2 * p - 1);
      const NaiveResult result = naive_run(problem, schedule_zb_auto(problem));
      CHECK(result.makespan == m * (f + i + w) + (p - 1) * std::max(f, f + i - 2 * w));
      CHECK(zb_auto_bound(problem).value <= result.makespan);
    }
  }
}

TEST_CASE("ZB auto on even stages in V placement reaches ZB-V with p in memory: no bubble but the way in") {
  for (const int p : {2, 3, 4, 6}) {
    const int m = 2 * p + 2;
    AutoProblem problem =
        even_problem({.ranks = p, .microbatches = m, .rank_of_stage = wave_placement(p, 2)}, times(3, 3, 3));
    problem.limit = limits(p, 2 * p);
    CAPTURE(p);
    CHECK(naive_run(problem, schedule_zb_auto(problem)).makespan == 2 * m * 9 + (p - 1) * 3);
  }
}

// By hand. T: the time from the first rank's F to its I, without waiting.
TEST_CASE("the bound of ZB auto is as high as each of its parts makes it") {
  const auto bound = [](int ranks, int m, const StageLoad& load, int first_limit) {
    AutoProblem problem =
        even_problem({.ranks = ranks, .microbatches = m, .rank_of_stage = loop_placement(ranks, 1)}, load);
    problem.limit = limits(ranks, 1'000'000);
    problem.limit.front() = Bytes{first_limit};
    return zb_auto_bound(problem).value;
  };
  StageLoad load = times(2, 3, 1);
  load.kept = Bytes{2};
  // W keeps nothing: one microbatch at a time from F to I, then the last W. T = 2 · (2+3).
  load.kept_for_weight = Bytes{0};
  CHECK(bound(2, 7, load, 3) == Approx(7 * 10 + 1));
  // W keeps all: one at a time from F to W. A rank's area says 2/3 of that only.
  load.kept_for_weight = Bytes{2};
  CHECK(bound(2, 7, load, 3) == Approx(7 * 11));
  // Two fit, and half of one more, which the arcs cannot use: the area over the limit. T = 4 · (2+3).
  load.kept_for_weight = Bytes{1};
  CHECK(bound(4, 40, load, 4) == Approx(40 * (2 * 20 + 1) / 4.0).epsilon(1e-9));
}

TEST_CASE("ZB auto on the better of both placements is no slower than any fixed schedule within p activations") {
  std::mt19937 random(4);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  int in_loop = 0;
  int in_wave = 0;
  for (int round = 0; round < 40; ++round) {
    const int p = any(2, 8);
    const int m = any(1, 24);
    const int v = 1 + round % 2;
    const StageLoad load = times(any(1, 9), any(1, 9), any(0, 9));
    AutoProblem problem =
        even_problem({.ranks = p, .microbatches = m, .rank_of_stage = loop_placement(p, v), .hop = any(-3, 2)}, load);
    if (problem.hop.front() < Seconds{0}) problem.hop.assign(problem.hop.size(), Seconds{0});
    problem.limit = limits(p, p * v);
    const Schedule schedule = schedule_zb_auto(problem, auto_placements(p, v), v);
    CHECK(validate(schedule).empty());
    if (round % 4 < 2) CHECK(schedule == schedule_zb_auto(problem, auto_placements(p, v), v));
    problem.rank_of_stage = schedule.rank_of_stage;
    CHECK(within_limits(problem, schedule));
    const int makespan = naive_run(problem, schedule).makespan;
    if (v > 1) ++(schedule.rank_of_stage == loop_placement(p, v) ? in_loop : in_wave);
    int best = 1 << 30;
    for (const auto& placement : {loop_placement(p, v), wave_placement(p, v)}) {
      problem.rank_of_stage = placement;
      best = std::min(best, best_fixed(problem));
    }
    CAPTURE(round, p, m, v, load.forward.value, load.input_gradient.value, load.weight_gradient.value);
    CHECK(makespan <= best);
  }
  CHECK(in_loop > 0);
  CHECK(in_wave > 0);
}

TEST_CASE("ZB auto keeps no memory that does not make it faster") {
  // Without a limit: ZB-H2 is as fast as can be and keeps 2p−1.
  for (const int p : {2, 4, 6}) {
    const AutoProblem problem =
        even_problem({.ranks = p, .microbatches = 4 * p, .rank_of_stage = loop_placement(p, 1)}, times(3, 3, 3));
    const Schedule schedule = schedule_zb_auto(problem);
    CAPTURE(p);
    for (const Bytes kept : kept_at_most(problem, schedule)) CHECK(kept <= Bytes{2 * p - 1});
  }
  // The second rank alone says how long it takes: what the first is ahead beyond two gains nothing.
  AutoProblem slow = even_problem({.ranks = 2, .microbatches = 20, .rank_of_stage = {0, 1}}, times(1, 1, 1));
  slow.stages[1] = times(4, 4, 4);
  const Schedule schedule = schedule_zb_auto(slow);
  CHECK(naive_run(slow, schedule).makespan == 1 + 20 * 12);
  for (const Bytes kept : kept_at_most(slow, schedule)) CHECK(kept <= Bytes{2});
}

TEST_CASE("ZB auto by name: all stages alike, 1F1B's memory") {
  for (const int v : {1, 2, 3}) {
    const ScheduleShape shape{.ranks = 4, .microbatches = 8, .chunks = v};
    const Schedule schedule = generate_schedule("zb-auto", shape);
    CHECK(validate(schedule).empty());
    CHECK(in_order(schedule));
    CHECK(schedule.rank_of_stage == (v == 2 ? wave_placement(4, 2) : loop_placement(4, v)));
    AutoProblem problem =
        even_problem({.ranks = 4, .microbatches = 8, .rank_of_stage = schedule.rank_of_stage}, times(1, 1, 1));
    problem.limit = limits(4, 4 * v);
    CHECK(within_limits(problem, schedule));
    CHECK(schedule == generate_schedule("zb-auto", shape));
  }
}

TEST_CASE("ZB auto says by how much one microbatch does not fit, and what else is wrong") {
  AutoProblem problem =
      even_problem({.ranks = 2, .microbatches = 4, .rank_of_stage = wave_placement(2, 2)}, times(1, 1, 1));
  problem.limit = {Bytes{2}, Bytes{1}};
  CHECK_THROWS_WITH(schedule_zb_auto(problem),
                    ContainsSubstring("one microbatch keeps 2 B on rank 1, where 1 B is left for it") &&
                        ContainsSubstring("hint: recompute, or cut the stages smaller") && !ContainsSubstring("take"));
  problem.limit = {Bytes{2}};
  CHECK_THROWS_WITH(schedule_zb_auto(problem), ContainsSubstring("1 limits, but expected 2"));
  problem.limit = {};
  problem.hop = {Seconds{1}};
  CHECK_THROWS_WITH(schedule_zb_auto(problem), ContainsSubstring("1 hops, but expected 3"));
  problem.hop = {};
  problem.stages[2].forward = Seconds{-1};
  CHECK_THROWS_WITH(schedule_zb_auto(problem), ContainsSubstring("stage 2 takes -1 s"));
  problem.stages[2].forward = Seconds{1};
  problem.rank_of_stage[1] = 2;
  CHECK_THROWS_WITH(schedule_zb_auto(problem), ContainsSubstring("stage 1 on rank 2, but there are 2 ranks"));
  problem.rank_of_stage.pop_back();
  CHECK_THROWS_WITH(schedule_zb_auto(problem), ContainsSubstring("3 ranks of stages, but expected 4"));
  problem.microbatches = 0;
  CHECK_THROWS_WITH(schedule_zb_auto(problem), ContainsSubstring("each must be at least 1"));
}

TEST_CASE(
    "a search for a schedule that is told to end does so soon, and the same problem unhindered is solved as ever") {
  std::mt19937 random(9);
  AutoProblem problem{.ranks = 8, .microbatches = 512, .rank_of_stage = {}, .stages = {}, .hop = {}, .limit = {}};
  for (int stage = 0; stage < 16; ++stage) {
    const auto time = [&] { return Seconds{std::uniform_int_distribution<int>(5, 20)(random) * 1.0}; };
    problem.rank_of_stage.push_back(stage % 8);
    problem.stages.push_back(
        {.forward = time(), .input_gradient = time(), .weight_gradient = time(), .kept = {2}, .kept_for_weight = {1}});
  }
  problem.limit.assign(8, Bytes{64});
  const auto begin = std::chrono::steady_clock::now();
  const auto taken = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const Stop soon(nullptr, deadline_after(std::chrono::duration<double>(0.05)));
  problem.stop = &soon;
  CHECK_THROWS_AS(schedule_zb_auto(problem), Stopped);
  const double until_stopped = taken();
  const Stop never;
  problem.stop = &never;
  CHECK(validate(schedule_zb_auto(problem)).empty());
  CHECK(until_stopped < (taken() - until_stopped) / 2);
}
