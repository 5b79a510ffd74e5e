// The exact splits against brute force over all splits.
#include <algorithm>
#include <limits>
#include <random>

#include "common/base/error.hpp"
#include "common/cost/costs.hpp"
#include "common/schedule/schedule.hpp"
#include "common/split/split.hpp"
#include "common/split/weighed_chain.hpp"
#include "tests/catch.hpp"
#include "tests/common/split/all_splits.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Stages of each rank, with the bytes that are there and those per microbatch.
struct StageBytes {
  int fixed = 0;
  int kept = 0;
  std::vector<ComputeCost> blocks = {};
};

// What memory_over_time counts for an action, beside what its stage keeps of the microbatch: see footprint.
int workspace(const std::vector<ComputeCost>& blocks) {
  const ComputeCost stage = in_sequence(blocks);
  const Bytes of_weight = stage.kept_for_weight_bytes + stage.weight_gradient_workspace_bytes - stage.kept_bytes;
  return static_cast<int>(
      std::max({stage.forward_workspace_bytes, stage.input_gradient_workspace_bytes, of_weight}).value);
}

// Time and memory of a split by the definition: blocks one by one, no help from the code under test.
struct Weighed {
  double slowest = 0;
  bool fits = true;
};
Weighed weigh(const SplitProblem& problem, const Split& split) {
  const std::size_t stages = split.layers.size();
  std::vector<double> time(stages, 0);
  std::vector<std::vector<StageBytes>> of_rank(problem.moments.size());
  std::size_t block = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    std::size_t blocks = static_cast<std::size_t>(split.layers[stage]);
    if (stage == 0) ++blocks;
    if (stage + 1 == stages) ++blocks;
    StageBytes& bytes = of_rank[static_cast<std::size_t>(problem.rank_of_stage[stage])].emplace_back();
    for (; blocks > 0; --blocks, ++block) {
      time[stage] += problem.block_times[block].value;
      bytes.fixed += static_cast<int>(problem.block_fixed_bytes[block].value);
      bytes.kept += static_cast<int>(problem.block_kept_bytes[block].value);
      ComputeCost& cost = bytes.blocks.emplace_back();
      cost.kept_bytes = problem.block_kept_bytes[block];
      if (problem.block_workspaces.empty()) continue;
      cost.forward_workspace_bytes = problem.block_workspaces[block].forward;
      cost.input_gradient_workspace_bytes = problem.block_workspaces[block].input_gradient;
      cost.weight_gradient_workspace_bytes = problem.block_workspaces[block].weight_gradient;
      cost.kept_for_weight_bytes = problem.block_workspaces[block].kept_for_weight;
    }
  }
  Weighed weighed{.slowest = *std::ranges::max_element(time)};
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    for (const Moment& moment : problem.moments[rank]) {
      int sum = problem.rank_reserve.empty() ? 0 : static_cast<int>(problem.rank_reserve[rank].value);
      int working = 0;
      for (std::size_t k = 0; k < moment.size(); ++k) {
        sum += of_rank[rank][k].fixed + moment[k] * of_rank[rank][k].kept;
        if (!problem.block_workspaces.empty()) working = std::max(working, workspace(of_rank[rank][k].blocks));
      }
      sum += working;
      if (problem.memory_per_rank && sum > problem.memory_per_rank->value) weighed.fits = false;
    }
  }
  return weighed;
}

SplitProblem random_problem(std::mt19937& random, int ranks, int chunks, int layers) {
  SplitProblem problem;
  problem.rank_of_stage = loop_placement(ranks, chunks);
  const int alike = pick(random, 0, 1);
  for (int block = 0; block < layers + 2; ++block) {
    // Few distinct times make many ties.
    problem.block_times.push_back({static_cast<double>(pick(random, alike, alike == 1 ? 3 : 20))});
    problem.block_fixed_bytes.push_back({pick(random, 0, 12)});
    problem.block_kept_bytes.push_back({pick(random, 0, 4)});
  }
  for (int rank = 0; rank < ranks; ++rank) {
    auto& moments = problem.moments.emplace_back(static_cast<std::size_t>(chunks == 1 ? 1 : pick(random, 1, 3)));
    for (Moment& moment : moments) {
      for (int chunk = 0; chunk < chunks; ++chunk) moment.push_back(pick(random, 1, 4));
    }
  }
  const bool works = pick(random, 0, 1) == 0;
  if (works) add_workspaces(problem, random, false, 40);
  if (pick(random, 0, 3) > 0) problem.memory_per_rank = Bytes{pick(random, 10, works ? 160 : 120)};
  return problem;
}

}  // namespace

TEST_CASE("the dynamic split is optimal under memory limits, ties to the largest counts: 12,000 brute-forced cases") {
  std::mt19937 random(1);
  int limited = 0, impossible = 0, coupled = 0, working = 0;
  for (int round = 0; round < testing::cases(12000); ++round) {
    const int chunks = pick(random, 1, 2);
    const int ranks = pick(random, 1, chunks == 1 ? 5 : 3);
    const int layers = pick(random, ranks * chunks, 9);
    const SplitProblem problem = random_problem(random, ranks, chunks, layers);
    std::optional<Split> best;
    double fastest = std::numeric_limits<double>::infinity();
    for_all_splits(layers, ranks * chunks, [&](const Split& split) {
      const Weighed weighed = weigh(problem, split);
      if (!weighed.fits || weighed.slowest > fastest) return;
      if (weighed.slowest < fastest || split.layers > best->layers) best = split;
      fastest = weighed.slowest;
    });
    CAPTURE(round, ranks, chunks, layers);
    const std::optional<Split> found = dynamic_split(problem);
    REQUIRE(found.has_value() == best.has_value());
    if (!best) {
      ++impossible;
      continue;
    }
    CHECK(describe(*found) == describe(*best));
    CHECK(slowest_stage_time(problem, *found).value == fastest);
    if (problem.memory_per_rank) {
      ++limited;
      coupled += chunks == 2;
      working += problem.block_workspaces.empty() ? 0 : 1;
      for (const Bytes bytes : rank_memory(problem, *found)) CHECK(bytes <= *problem.memory_per_rank);
    }
  }
  CHECK(limited > testing::found_in(3000));
  CHECK(coupled > testing::found_in(1000));
  CHECK(working > testing::found_in(1000));
  CHECK(impossible > testing::found_in(1000));
}

TEST_CASE("the parameter split is optimal in max − min, then max, then largest counts: brute force") {
  std::mt19937 random(2);
  for (int round = 0; round < 4000; ++round) {
    const int layers = pick(random, 1, 9);
    const int stages = pick(random, 1, std::min(layers, 5));
    std::vector<std::int64_t> blocks;
    for (int block = 0; block < layers + 2; ++block) blocks.push_back(pick(random, 0, round % 2 == 0 ? 3 : 50));
    Split best;
    std::pair<std::int64_t, std::int64_t> least{std::numeric_limits<std::int64_t>::max(), 0};
    for_all_splits(layers, stages, [&](const Split& split) {
      std::vector<std::int64_t> sums;
      std::size_t block = 0;
      for (int stage = 0; stage < stages; ++stage) {
        int count =
            split.layers[static_cast<std::size_t>(stage)] + (stage == 0 ? 1 : 0) + (stage + 1 == stages ? 1 : 0);
        sums.push_back(0);
        for (; count > 0; --count) sums.back() += blocks[block++];
      }
      const auto [low, high] = std::ranges::minmax(sums);
      const std::pair weight{high - low, high};
      if (weight < least || (weight == least && split.layers > best.layers)) {
        least = weight;
        best = split;
      }
    });
    CAPTURE(round, layers, stages);
    CHECK(describe(parameter_split(blocks, stages)) == describe(best));
  }
}

TEST_CASE("a heavy head takes layers from the last stage") {
  SplitProblem problem;
  problem.rank_of_stage = {0, 1};
  problem.moments = {{{2}}, {{1}}};
  problem.block_times = {{0.0}, {1.0}, {1.0}, {1.0}, {1.0}, {2.0}};
  problem.block_fixed_bytes.assign(6, {10});
  problem.block_kept_bytes.assign(6, {5});
  CHECK(describe(*dynamic_split(problem)) == "[3, 1]");
  problem.memory_per_rank = Bytes{60};  // rank 0 would need 4 · (10 + 2·5) = 80
  CHECK(describe(*dynamic_split(problem)) == "[2, 2]");
  problem.memory_per_rank = Bytes{59};
  CHECK_FALSE(dynamic_split(problem).has_value());  // [1, 3] needs 60 on rank 1
}

TEST_CASE("the workspace of a block weighs on its own stage, not on every rank") {
  SplitProblem problem;
  problem.rank_of_stage = {0, 1};
  problem.moments = {{{2}}, {{1}}};
  problem.block_times = {{0.0}, {1.0}, {1.0}, {1.0}, {1.0}, {1.0}, {1.0}, {2.0}};
  problem.block_fixed_bytes.assign(8, {10});
  problem.block_kept_bytes.assign(8, {5});
  problem.block_workspaces.assign(8, {.forward = {1}});
  problem.block_workspaces.back().forward = {40};
  // [4, 2]: 5 · (10 + 2·5) + 1 on rank 0, 3 · (10 + 5) + 40 on rank 1.
  problem.memory_per_rank = Bytes{101};
  CHECK(describe(*dynamic_split(problem)) == "[4, 2]");
  // With 40 on both ranks nothing fits: then rank 0 holds at most three blocks, and rank 1 cannot hold five.
  problem.block_workspaces.clear();
  problem.rank_reserve = {{40}, {40}};
  CHECK_FALSE(dynamic_split(problem).has_value());
  problem.rank_reserve = {{1}, {40}};
  CHECK(describe(*dynamic_split(problem)) == "[4, 2]");
}

TEST_CASE("splits that cannot be evaluated are refused") {
  SplitProblem problem;
  problem.rank_of_stage = {0, 1, 2};
  problem.moments = {{{1}}, {{1}}, {{1}}};
  problem.block_times.assign(4, {1.0});
  problem.block_fixed_bytes.assign(4, {1});
  problem.block_kept_bytes.assign(4, {1});
  CHECK_THROWS_WITH(dynamic_split(problem), ContainsSubstring("3 stages are more than the model's 2 layers"));
  problem.rank_of_stage = {0, 3};
  CHECK_THROWS_WITH(dynamic_split(problem), ContainsSubstring("expected ranks 0 to 2"));
  problem.rank_of_stage = {0, 1};
  problem.moments = {{{1}}, {{1, 1}}};
  CHECK_THROWS_WITH(dynamic_split(problem), ContainsSubstring("rank 1: expected moments of its 1 stages"));
  problem.moments = {{{1}}, {{1}}};
  CHECK(dynamic_split(problem).has_value());
  problem.block_times[2].value = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(dynamic_split(problem), InputError);
  problem.block_times[2].value = -1;
  CHECK_THROWS_AS(dynamic_split(problem), InputError);
  problem.block_times[2].value = 1;
  problem.block_workspaces.resize(3);
  CHECK_THROWS_WITH(dynamic_split(problem), ContainsSubstring("workspaces and reserves are not those of 4 blocks"));
  problem.block_workspaces.resize(4);
  problem.rank_reserve = {{0}, {-1}};
  CHECK_THROWS_AS(dynamic_split(problem), InputError);
  CHECK_THROWS_AS(parameter_split({1, -1, 1, 1}, 2), InputError);
  CHECK_THROWS_AS(parameter_split({1}, 1), InputError);
}

// A model may have 10,000 layers.
TEST_CASE("exact splits say how many layers they take, and which split takes more") {
  SplitProblem problem;
  problem.rank_of_stage = {0, 1};
  problem.moments = {{{1}}, {{1}}};
  problem.block_times.assign(4097, {1.0});
  problem.block_fixed_bytes.assign(4097, {1});
  problem.block_kept_bytes.assign(4097, {1});
  const auto says = ContainsSubstring("take at most 4094 layers, the model has 4095");
  CHECK_THROWS_WITH(dynamic_split(problem), says && ContainsSubstring("split: uniform"));
  CHECK_THROWS_WITH(parameter_split(std::vector<std::int64_t>(4097, 1), 2), says);
  CHECK(parameter_split(std::vector<std::int64_t>(4096, 1), 2).layers == std::vector<int>{2047, 2047});
}
