// The evened split against all splits of small chains.
#include <algorithm>
#include <random>

#include "common/split/split.hpp"
#include "common/split/weighed_chain.hpp"
#include "tests/catch.hpp"
#include "tests/common/split/all_splits.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

double squares(const SplitProblem& problem, const Split& split) {
  double sum = 0;
  for (int stage = 0; stage < static_cast<int>(split.layers.size()); ++stage) {
    const BlockRange range = blocks_of_stage(split, stage);
    double time = 0;
    for (int block = range.first; block < range.last; ++block) {
      time += problem.block_times[static_cast<std::size_t>(block)].value;
    }
    sum += time * time;
  }
  return sum;
}

// Small whole numbers, so that ties are frequent and sums exact.
SplitProblem random_problem(std::mt19937& random, bool limited) {
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  const int stages = 2 + below(3);
  const int layers = stages + below(5);
  SplitProblem problem{.block_times = {},
                       .block_fixed_bytes = {},
                       .block_kept_bytes = {},
                       .rank_of_stage = {},
                       .moments = {},
                       .memory_per_rank = {}};
  for (int block = 0; block < layers + 2; ++block) {
    problem.block_times.push_back({1.0 + below(4)});
    problem.block_fixed_bytes.push_back({1 + below(6)});
    problem.block_kept_bytes.push_back({below(4)});
  }
  for (int stage = 0; stage < stages; ++stage) {
    problem.rank_of_stage.push_back(stage);
    problem.moments.push_back({{stages - stage}});
  }
  if (limited) problem.memory_per_rank = Bytes{12 + below(20)};
  return problem;
}

}  // namespace

TEST_CASE("the evened split is as fast as the dynamic one and has the least sum of squares of all such that fit") {
  std::mt19937 random(7);
  int compared = 0;
  int changed = 0;
  for (int i = 0; i < 3000; ++i) {
    const SplitProblem problem = random_problem(random, i % 2 == 0);
    const auto dynamic = dynamic_split(problem);
    if (!dynamic) continue;
    const Split even = evened(problem, *dynamic);
    double least = squares(problem, *dynamic);
    const auto layers = static_cast<int>(problem.block_times.size()) - 2;
    for_all_splits(layers, static_cast<int>(problem.rank_of_stage.size()), [&](const Split& split) {
      if (fits(problem, split) && slowest_stage_time(problem, split) <= slowest_stage_time(problem, *dynamic)) {
        least = std::min(least, squares(problem, split));
      }
    });
    REQUIRE(slowest_stage_time(problem, even) == slowest_stage_time(problem, *dynamic));
    REQUIRE(fits(problem, even));
    REQUIRE(squares(problem, even) == least);
    ++compared;
    changed += even == *dynamic ? 0 : 1;
  }
  CHECK(compared > 1500);
  CHECK(changed > 100);
}

TEST_CASE("chunks of one rank fit together after evening, too") {
  // The first rank holds the first and the last stage; what it keeps in front counts threefold.
  SplitProblem problem{.block_times = {{1}, {1}, {1}, {1}, {3}},
                       .block_fixed_bytes = {{1}, {1}, {1}, {1}, {1}},
                       .block_kept_bytes = {{1}, {1}, {9}, {1}, {1}},
                       .rank_of_stage = {0, 1, 0},
                       .moments = {{{3, 1}}, {{1}}},
                       .memory_per_rank = Bytes{16}};
  const auto dynamic = dynamic_split(problem);
  REQUIRE(dynamic.has_value());
  const Split even = evened(problem, *dynamic);
  CHECK(fits(problem, even));
  CHECK(slowest_stage_time(problem, even) == slowest_stage_time(problem, *dynamic));
}
