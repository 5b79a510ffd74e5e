// Splits of layers that are all alike: what counting says is what all splits say.
#include "common/split/equal_layers.hpp"

#include <algorithm>
#include <atomic>

#include "tests/catch.hpp"
#include "tests/common/split/all_splits.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Up to three stages a rank, in any order, with several moments; the embedding and the head unlike the layers.
SplitProblem random_problem(std::mt19937& random) {
  const int ranks = pick(random, 2, 3);
  const int stages = ranks * pick(random, 1, 3);
  const int layers = pick(random, std::max(stages, 2), 11);
  SplitProblem problem;
  const auto add = [&](Seconds time, Bytes fixed, Bytes kept) {
    problem.block_times.push_back(time);
    problem.block_fixed_bytes.push_back(fixed);
    problem.block_kept_bytes.push_back(kept);
  };
  add({static_cast<double>(pick(random, 0, 9))}, {pick(random, 0, 60)}, {pick(random, 0, 9)});
  const Seconds time{static_cast<double>(pick(random, 1, 9))};
  const Bytes fixed{pick(random, 1, 30)};
  const Bytes kept{pick(random, 0, 20)};
  for (int layer = 0; layer < layers; ++layer) add(time, fixed, kept);
  add({static_cast<double>(pick(random, 0, 20))}, {pick(random, 0, 60)}, {pick(random, 0, 9)});
  for (int stage = 0; stage < stages; ++stage) problem.rank_of_stage.push_back(stage % ranks);
  std::shuffle(problem.rank_of_stage.begin(), problem.rank_of_stage.end(), random);
  problem.moments.resize(static_cast<std::size_t>(ranks));
  for (std::vector<Moment>& moments : problem.moments) {
    for (int n = pick(random, 1, 3); n > 0; --n) {
      Moment& moment = moments.emplace_back();
      for (int own = 0; own < stages / ranks; ++own) moment.push_back(pick(random, 0, 4));
    }
  }
  if (pick(random, 0, 1) == 0) add_workspaces(problem, random, true, 60);
  problem.memory_per_rank = Bytes{pick(random, 20, 600)};
  return problem;
}

bool within(const WeighedChain& chain, const CoupledLimits& limits, const std::vector<LayerRange>& ranges,
            const Split& split) {
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    if (split.layers[stage] < ranges[stage].least || split.layers[stage] > ranges[stage].most) return false;
  }
  const std::vector<int> cuts = cuts_of(split);
  for (int rank = 0; rank < chain.ranks(); ++rank) {
    if (limits.bytes && chain.rank_bytes(rank, cuts) > *limits.bytes) return false;
    if (limits.time && chain.rank_time(rank, cuts) > *limits.time) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("counts of layers that are alike tell what all splits tell, and the largest is the largest") {
  std::mt19937 random(3);
  int possible = 0;
  int impossible = 0;
  for (int n = 0; n < 3000; ++n) {
    const SplitProblem problem = random_problem(random);
    const WeighedChain chain(problem);
    REQUIRE(EqualLayers::are(chain));
    CoupledLimits limits{.bytes = problem.memory_per_rank->value};
    if (pick(random, 0, 1) == 0) limits.time = WeighedChain::whole_time / chain.ranks() * pick(random, 8, 20) / 10;
    if (limits.time && pick(random, 0, 1) == 0) limits.bytes.reset();
    EqualLayers alike(chain, limits);
    std::vector<LayerRange> ranges = alike.any();
    for (LayerRange& range : ranges) range.most = pick(random, 0, 9) == 0 ? pick(random, 1, 4) : range.most;
    Split largest;
    for_all_splits(chain.blocks() - 2, chain.stages(), [&](const Split& split) {
      if (within(chain, limits, ranges, split)) largest.layers = std::max(largest.layers, split.layers);
    });
    CAPTURE(n);
    REQUIRE(alike.possible(ranges) == !largest.layers.empty());
    const auto found = alike.largest(ranges);
    REQUIRE(found.has_value());
    REQUIRE(*found == (largest.layers.empty() ? std::vector<int>{} : cuts_of(largest)));
    ++(largest.layers.empty() ? impossible : possible);
  }
  CHECK(possible > 500);
  CHECK(impossible > 500);
}

TEST_CASE("the dynamic split of layers that are alike is the best of all splits that fit") {
  std::mt19937 random(4);
  int some = 0;
  for (int n = 0; n < 2000; ++n) {
    const SplitProblem problem = random_problem(random);
    std::optional<Split> best;
    const int layers = static_cast<int>(problem.block_times.size()) - 2;
    for_all_splits(layers, static_cast<int>(problem.rank_of_stage.size()), [&](const Split& split) {
      if (!fits(problem, split)) return;
      const auto time = [&](const Split& of) { return slowest_stage_time(problem, of); };
      if (!best || time(split) < time(*best) || (time(split) == time(*best) && split.layers > best->layers)) {
        best = split;
      }
    });
    CAPTURE(n);
    REQUIRE(dynamic_split(problem) == best);
    some += best ? 1 : 0;
  }
  CHECK(some > 500);
}

TEST_CASE("layers with another size or time are not alike") {
  std::mt19937 random(5);
  for (int n = 0; n < 100; ++n) {
    SplitProblem problem = random_problem(random);
    const auto layer = static_cast<std::size_t>(pick(random, 1, static_cast<int>(problem.block_times.size()) - 2));
    switch (n % 4) {
      case 0:
        problem.block_times[layer] += Seconds{0.5};
        break;
      case 1:
        problem.block_fixed_bytes[layer] += Bytes{1};
        break;
      case 2:
        problem.block_workspaces.resize(problem.block_times.size());
        problem.block_workspaces[layer].forward += Bytes{1};
        break;
      default:
        problem.block_kept_bytes[layer] += Bytes{1};
    }
    CHECK_FALSE(EqualLayers::are(WeighedChain(problem)));
  }
}

// 48 layers of two kinds, four stages a rank and a limit that is just missed: a proof takes millions of steps.
TEST_CASE("a search for a split that is told to end does so within a fraction of a second") {
  SplitProblem problem;
  std::mt19937 random(6);
  for (int block = 0; block < 50; ++block) {
    problem.block_times.push_back({1 + 0.01 * pick(random, 0, 99)});
    problem.block_fixed_bytes.push_back({pick(random, 900, 1100)});
    problem.block_kept_bytes.push_back({pick(random, 90, 110)});
  }
  for (int stage = 0; stage < 16; ++stage) problem.rank_of_stage.push_back(stage % 4);
  problem.moments.assign(4, {{4, 3, 2, 1}, {1, 2, 3, 4}});
  problem.memory_per_rank = Bytes{15'900};
  const auto seconds_of = [&](const Stop& stop) {
    problem.stop = &stop;
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THROWS_AS((void)fast_splits(problem), Stopped);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::atomic<bool> flag = true;
  CHECK(seconds_of(Stop(&flag, std::nullopt)) < 0.2);
  const auto limit = std::chrono::milliseconds(50);
  const double taken = seconds_of(Stop(nullptr, std::chrono::steady_clock::now() + limit));
  CHECK(taken < 0.05 + 0.2);
}
