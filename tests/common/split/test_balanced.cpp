// Splits of ranks with several stages against brute force over all splits.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <random>

#include "common/base/error.hpp"
#include "common/schedule/schedule.hpp"
#include "common/split/coupled.hpp"
#include "common/split/cut_search.hpp"
#include "tests/catch.hpp"
#include "tests/common/split/all_splits.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Whole numbers, so that sums are exact in any order; some ranks hold more of the one stage and then of the other.
SplitProblem random_problem(std::mt19937& random, int ranks, int chunks, int layers) {
  SplitProblem problem;
  problem.rank_of_stage = loop_placement(ranks, chunks);
  for (int block = 0; block < layers + 2; ++block) {
    problem.block_times.push_back({static_cast<double>(pick(random, 1, 20))});
    problem.block_fixed_bytes.push_back({pick(random, 0, 12)});
    problem.block_kept_bytes.push_back({pick(random, 0, 4)});
  }
  for (int rank = 0; rank < ranks; ++rank) {
    auto& moments = problem.moments.emplace_back(static_cast<std::size_t>(pick(random, 1, 3)));
    for (Moment& moment : moments) {
      for (int chunk = 0; chunk < chunks; ++chunk) moment.push_back(pick(random, 0, 4));
    }
  }
  return problem;
}

// By the definition: blocks one by one, no help from the code under test.
struct Weighed {
  double slowest_rank = 0;
  double slowest_stage = 0;
  int most_bytes = 0;
};
Weighed weigh(const SplitProblem& problem, const Split& split) {
  std::vector<double> time(problem.moments.size(), 0);
  std::vector<std::vector<int>> bytes;  // by rank and moment
  for (const auto& moments : problem.moments) bytes.emplace_back(moments.size(), 0);
  std::vector<std::size_t> place(problem.moments.size(), 0);
  Weighed weighed;
  std::size_t block = 0;
  for (std::size_t stage = 0; stage < split.layers.size(); ++stage) {
    const auto rank = static_cast<std::size_t>(problem.rank_of_stage[stage]);
    const int ends = (stage == 0 ? 1 : 0) + (stage + 1 == split.layers.size() ? 1 : 0);
    double own = 0;
    for (int count = split.layers[stage] + ends; count > 0; --count, ++block) {
      own += problem.block_times[block].value;
      for (std::size_t n = 0; n < bytes[rank].size(); ++n) {
        bytes[rank][n] +=
            static_cast<int>(problem.block_fixed_bytes[block].value) +
            problem.moments[rank][n][place[rank]] * static_cast<int>(problem.block_kept_bytes[block].value);
        weighed.most_bytes = std::max(weighed.most_bytes, bytes[rank][n]);
      }
    }
    ++place[rank];
    time[rank] += own;
    weighed.slowest_stage = std::max(weighed.slowest_stage, own);
  }
  weighed.slowest_rank = *std::ranges::max_element(time);
  return weighed;
}

struct Best {
  double slowest_rank = std::numeric_limits<double>::infinity();
  double pace = std::numeric_limits<double>::infinity();
  bool any = false;
};
Best brute_force(const SplitProblem& problem, int layers, int chunks) {
  Best best;
  for_all_splits(layers, static_cast<int>(problem.rank_of_stage.size()), [&](const Split& split) {
    const Weighed weighed = weigh(problem, split);
    if (problem.memory_per_rank && weighed.most_bytes > problem.memory_per_rank->value) return;
    best.any = true;
    best.slowest_rank = std::min(best.slowest_rank, weighed.slowest_rank);
    best.pace = std::min(best.pace, weighed.slowest_rank + chunks * weighed.slowest_stage);
  });
  return best;
}

double pace_of(const SplitProblem& problem, const Split& split, int chunks) {
  const Weighed weighed = weigh(problem, split);
  return weighed.slowest_rank + chunks * weighed.slowest_stage;
}

struct Counts {
  int compared = 0;
  int limited = 0;
  int impossible = 0;
  int fastest_rank = 0;        // as by brute force
  int fastest_rank_local = 0;  // the same by the local search alone
  int fastest_pace = 0;
};

// One random problem: the splits fit, are no slower than the starts, and are counted where nothing is faster.
void compare(const SplitProblem& problem, int layers, int chunks, Counts& counts) {
  const Best best = brute_force(problem, layers, chunks);
  const std::vector<Split> splits = fast_splits(problem);
  REQUIRE(splits.empty() == !best.any);
  if (!best.any) {
    ++counts.impossible;
    return;
  }
  ++counts.compared;
  counts.limited += problem.memory_per_rank ? 1 : 0;
  for (const Split& split : splits) {
    if (problem.memory_per_rank) REQUIRE(weigh(problem, split).most_bytes <= problem.memory_per_rank->value);
  }
  const Split uniform = uniform_split(layers, static_cast<int>(problem.rank_of_stage.size()));
  const Split stages = *dynamic_split(problem);
  const std::vector<Split> starts{stages, uniform};
  const Split by_rank = balanced_split(problem, starts, BalanceAim::slowest_rank);
  const Split by_pace = balanced_split(problem, starts, BalanceAim::pace);
  REQUIRE(std::ranges::find(splits, by_rank) != splits.end());
  REQUIRE(std::ranges::find(splits, by_pace) != splits.end());
  for (const Split& start : starts) {
    if (!fits(problem, start)) continue;
    REQUIRE(weigh(problem, by_rank).slowest_rank <= weigh(problem, start).slowest_rank);
    REQUIRE(pace_of(problem, by_pace, chunks) <= pace_of(problem, start, chunks));
  }
  REQUIRE(weigh(problem, by_pace).slowest_rank <= weigh(problem, stages).slowest_rank);
  REQUIRE(slowest_rank_time(problem, by_rank).value == weigh(problem, by_rank).slowest_rank);
  REQUIRE(slowest_stage_time(problem, by_pace).value == weigh(problem, by_pace).slowest_stage);
  counts.fastest_rank += weigh(problem, by_rank).slowest_rank == best.slowest_rank ? 1 : 0;
  counts.fastest_pace += pace_of(problem, by_pace, chunks) == best.pace ? 1 : 0;

  const WeighedChain chain(problem);
  const auto limit = problem.memory_per_rank ? std::optional(problem.memory_per_rank->value) : std::nullopt;
  double local = std::numeric_limits<double>::infinity();
  for (const Split& start : starts) {
    const Split end = split_from_cuts(CutSearch(chain, limit, 0).improved(cuts_of(start)));
    if (fits(problem, end)) local = std::min(local, weigh(problem, end).slowest_rank);
  }
  counts.fastest_rank_local += local == best.slowest_rank ? 1 : 0;
}

}  // namespace

TEST_CASE(
    "with two stages a rank: splits fit where one does, are no slower than where they started, and often fastest") {
  std::mt19937 random(3);
  Counts counts;
  for (int round = 0; round < plumb::testing::cases(3000); ++round) {
    const int ranks = pick(random, 2, 3);
    const int layers = pick(random, 2 * ranks, 10);
    SplitProblem problem = random_problem(random, ranks, 2, layers);
    // Limits about what the uniform split takes: few are far from binding.
    const int uniform = weigh(problem, uniform_split(layers, 2 * ranks)).most_bytes;
    if (round % 4 != 0) problem.memory_per_rank = Bytes{uniform * pick(random, 60, 130) / 100};
    CAPTURE(round);
    compare(problem, layers, 2, counts);
  }
  std::cout << counts.compared << " random problems: slowest rank as fast as any " << counts.fastest_rank
            << " times, by the local search alone " << counts.fastest_rank_local << "; pace " << counts.fastest_pace
            << '\n';
  CHECK(counts.compared >= plumb::testing::found_in(2001));
  CHECK(counts.limited >= plumb::testing::found_in(1001));
  CHECK(counts.impossible >= plumb::testing::found_in(101));
  CHECK(counts.fastest_rank == counts.compared);  // such short chains are searched to the end
  CHECK(counts.fastest_rank_local >= counts.compared * 8 / 10);
  CHECK(counts.fastest_pace >= counts.compared * 9 / 10);
}

TEST_CASE("with one stage a rank the fast split is the dynamic one, evened") {
  std::mt19937 random(4);
  for (int round = 0; round < plumb::testing::cases(300); ++round) {
    SplitProblem problem = random_problem(random, 4, 1, 9);
    for (auto& moments : problem.moments) moments.resize(1);
    problem.memory_per_rank = Bytes{pick(random, 30, 120)};
    const auto dynamic = dynamic_split(problem);
    const std::vector<Split> splits = fast_splits(problem);
    REQUIRE(splits.empty() == !dynamic.has_value());
    if (dynamic) CHECK(splits == std::vector{evened(problem, *dynamic)});
  }
}

TEST_CASE("where a proof takes too long the local search still finds splits that fit") {
  std::mt19937 random(5);
  const int layers = 64;
  SplitProblem problem = random_problem(random, 8, 4, layers);
  const Split uniform = uniform_split(layers, 32);
  problem.memory_per_rank = Bytes{weigh(problem, uniform).most_bytes * 9 / 10};  // the uniform split does not fit
  CHECK_THROWS_AS(dynamic_split_within(problem, 1'000'000), TooLongToProve);
  const std::vector<Split> splits = fast_splits(problem);
  CHECK_FALSE(splits.empty());
  for (const Split& split : splits) {
    CHECK(weigh(problem, split).most_bytes <= problem.memory_per_rank->value);
    CHECK(weigh(problem, split).slowest_rank < weigh(problem, uniform).slowest_rank);
  }
}

TEST_CASE("the slowest rank never becomes slower when ranks have more memory") {
  std::mt19937 random(6);
  for (int round = 0; round < 30; ++round) {
    SplitProblem problem = random_problem(random, 3, 2, 12);
    const Split uniform = uniform_split(12, 6);
    const int taken = weigh(problem, uniform).most_bytes;
    double last = std::numeric_limits<double>::infinity();
    for (int percent = 80; percent <= 140; percent += 5) {
      problem.memory_per_rank = Bytes{taken * percent / 100};
      double fastest = std::numeric_limits<double>::infinity();
      for (const Split& split : fast_splits(problem)) {
        fastest = std::min(fastest, weigh(problem, split).slowest_rank);
      }
      CHECK(fastest <= last);
      last = fastest;
    }
  }
}

TEST_CASE("the local search ends after its steps, with what it has") {
  std::mt19937 random(7);
  const int layers = 4094;
  const SplitProblem problem = random_problem(random, 64, 4, layers);
  const WeighedChain chain(problem);
  const std::vector<int> start = cuts_of(uniform_split(layers, 256));
  CutSearch none(chain, std::nullopt, 0, -1);
  CHECK(none.improved(start) == start);
  CutSearch some(chain, std::nullopt, 0, 100'000);
  CHECK(some.order_of(some.improved(start)) < some.order_of(start));
}
