// Each published planner's cuts against brute force over all cuts, by that planner's own aim.
#include "common/split/baselines/baselines.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

CutProblem random_problem(unsigned seed) {
  std::mt19937 random(seed);
  const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  const int blocks = number(5, 10);
  CutProblem problem{.forward = {}, .backward = {}, .parameters = {}, .messages = {}, .microbatches = number(1, 12)};
  for (int i = 0; i < blocks; ++i) {
    problem.forward.push_back({static_cast<double>(number(0, 20))});
    problem.backward.push_back({static_cast<double>(number(0, 40))});
    problem.parameters.push_back(number(1, 50));
  }
  const int stages = number(2, std::min(5, blocks - 2));
  for (int i = 1; i < stages; ++i) problem.messages.push_back({static_cast<double>(number(0, 12))});
  return problem;
}

std::vector<Split> all_splits(const CutProblem& problem) {
  std::vector<Split> splits;
  std::vector<int> counts;
  const std::function<void(int, int)> place = [&](int left, int stages) {
    if (stages == 1) {
      counts.push_back(left);
      Split split{counts};
      --split.layers.front();
      --split.layers.back();
      splits.push_back(split);
      counts.pop_back();
      return;
    }
    for (int count = 1; count <= left - stages + 1; ++count) {
      counts.push_back(count);
      place(left - count, stages - 1);
      counts.pop_back();
    }
  };
  place(problem.blocks(), problem.stages());
  return splits;
}

struct StageTimes {
  std::vector<double> forward;
  std::vector<double> backward;
};

StageTimes stage_times(const CutProblem& problem, const Split& split) {
  StageTimes times;
  for (int stage = 0; stage < problem.stages(); ++stage) {
    const BlockRange blocks = blocks_of_stage(split, stage);
    double forward = 0;
    double backward = 0;
    for (auto block = static_cast<std::size_t>(blocks.first); block < static_cast<std::size_t>(blocks.last); ++block) {
      forward += problem.forward[block].value;
      backward += problem.backward[block].value;
    }
    times.forward.push_back(forward);
    times.backward.push_back(backward);
  }
  return times;
}

double pipedream_aim(const CutProblem& problem, const Split& split) {
  const StageTimes times = stage_times(problem, split);
  double worst = 0;
  for (std::size_t s = 0; s < times.forward.size(); ++s) worst = std::max(worst, times.forward[s] + times.backward[s]);
  for (const Seconds message : problem.messages) worst = std::max(worst, 2 * message.value);
  return worst;
}

double alpa_aim(const CutProblem& problem, const Split& split) {
  const StageTimes times = stage_times(problem, split);
  double sum = 0;
  double worst = 0;
  for (std::size_t s = 0; s < times.forward.size(); ++s) {
    sum += times.forward[s] + times.backward[s];
    worst = std::max(worst, times.forward[s] + times.backward[s]);
  }
  return sum + static_cast<double>(problem.microbatches - 1) * worst;
}

// Warm-up, steady and ending time for each pivot, written out from the paper; messages are stages of their own.
double dapple_aim(const CutProblem& problem, const Split& split) {
  const StageTimes times = stage_times(problem, split);
  std::vector<double> forward;
  std::vector<double> backward;
  for (std::size_t s = 0; s < times.forward.size(); ++s) {
    if (s > 0) {
      forward.push_back(problem.messages[s - 1].value);
      backward.push_back(problem.messages[s - 1].value);
    }
    forward.push_back(times.forward[s]);
    backward.push_back(times.backward[s]);
  }
  double latency = 0;
  for (std::size_t pivot = 0; pivot < forward.size(); ++pivot) {
    double warm_up = 0;
    double ending = 0;
    for (std::size_t a = 0; a <= pivot; ++a) warm_up += forward[a];
    for (std::size_t s = 0; s <= pivot; ++s) {
      double of_stage = 0;
      for (std::size_t a = s; a <= pivot; ++a) of_stage += backward[a];
      ending = std::max(ending, of_stage);
    }
    const double steady = static_cast<double>(problem.microbatches - 1) * (forward[pivot] + backward[pivot]);
    latency = std::max(latency, warm_up + steady + ending);
  }
  return latency;
}

template <class Aim>
double least(const CutProblem& problem, const Aim& aim) {
  double best = 1e18;
  for (const Split& split : all_splits(problem)) best = std::min(best, aim(problem, split));
  return best;
}

}  // namespace

TEST_CASE("PipeDream, Alpa and DAPPLE find the least of their own aims") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const CutProblem problem = random_problem(seed);
    CHECK(pipedream_aim(problem, pipedream_split(problem)) == least(problem, pipedream_aim));
    CHECK(alpa_aim(problem, alpa_split(problem)) == least(problem, alpa_aim));
    CHECK(dapple_aim(problem, dapple_split(problem)) == least(problem, dapple_aim));
  }
}

TEST_CASE("torchgpipe's blocks differ by at most the largest element, in its own scale") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    CutProblem problem = random_problem(seed);
    // With times from 1 on no block of its partition is empty, so that the theorem holds for the split as it is.
    double smallest = 1e18;
    double largest = 0;
    for (std::size_t i = 0; i < problem.forward.size(); ++i) {
      const double time = problem.forward[i].value + problem.backward[i].value;
      smallest = std::min(smallest, time);
      largest = std::max(largest, time);
    }
    const Split split = torchgpipe_split(problem);
    const std::vector<Split> all = all_splits(problem);
    CHECK(std::ranges::find(all, split) != all.end());
    std::vector<double> sums;
    for (int stage = 0; stage < problem.stages(); ++stage) {
      const BlockRange blocks = blocks_of_stage(split, stage);
      double sum = 0;
      for (auto i = static_cast<std::size_t>(blocks.first); i < static_cast<std::size_t>(blocks.last); ++i) {
        sum += (problem.forward[i].value + problem.backward[i].value - smallest) / (largest - smallest);
      }
      sums.push_back(sum);
    }
    const auto [low, high] = std::ranges::minmax(sums);
    CHECK(high <= low + 1 + 1e-9);
  }
}

TEST_CASE("torchgpipe by hand: a heavy head draws its stage together") {
  // Elements 0 0 0 0 0 1 in its scale: three and three blocks hold 0 and 1, within 1 of each other: no move.
  CutProblem problem{.forward = {{1}, {1}, {1}, {1}, {1}, {4}},
                     .backward = std::vector<Seconds>(6),
                     .parameters = std::vector<std::int64_t>(6, 1),
                     .messages = {{0}}};
  CHECK(torchgpipe_split(problem) == Split{{2, 2}});
  // Elements 0 ⅔ 1 1 1 1: sums 5/3 and 3; the first block takes one: 8/3 and 2, within 1.
  problem.forward = {{1}, {3}, {4}, {4}, {4}, {4}};
  CHECK(torchgpipe_split(problem) == Split{{3, 1}});
}

TEST_CASE("Megatron-LM and DeepSpeed cut by layers and by parameters") {
  CutProblem problem{.forward = std::vector<Seconds>(8, Seconds{1}),
                     .backward = std::vector<Seconds>(8, Seconds{2}),
                     .parameters = {9, 1, 1, 1, 1, 1, 1, 9},
                     .messages = {{0}, {0}}};
  CHECK(megatron_even_split(problem) == Split{{2, 2, 2}});
  CHECK(deepspeed_uniform_split(problem) == Split{{2, 2, 2}});
  CHECK(deepspeed_parameters_split(problem) == Split{{0, 6, 0}});
  problem.messages.push_back({0});
  CHECK(deepspeed_uniform_split(problem) == Split{{2, 2, 1, 1}});
  CHECK_THROWS_WITH(megatron_even_split(problem), ContainsSubstring("4 stages do not divide 6 layers"));
}

TEST_CASE("Megatron-LM's shorter first and last stage: the fastest slowest stage of all such splits") {
  int found = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const CutProblem problem = random_problem(seed);
    double least = std::numeric_limits<double>::infinity();
    for (const Split& split : all_splits(problem)) {
      if (split.layers.size() < 3) continue;
      const int middle = split.layers[1];
      const int first = split.layers.front();
      const int last = split.layers.back();
      const bool equal =
          std::all_of(split.layers.begin() + 1, split.layers.end() - 1, [&](int n) { return n == middle; });
      if (!equal || first > middle || last > middle || first + last == 2 * middle || first < 1 || last < 1) continue;
      const StageTimes times = stage_times(problem, split);
      double slowest = 0;
      for (std::size_t s = 0; s < times.forward.size(); ++s) {
        slowest = std::max(slowest, times.forward[s] + times.backward[s]);
      }
      least = std::min(least, slowest);
    }
    CAPTURE(seed);
    if (std::isinf(least)) {
      CHECK_THROWS_AS(megatron_first_last_split(problem), InputError);
      continue;
    }
    ++found;
    const StageTimes times = stage_times(problem, megatron_first_last_split(problem));
    double slowest = 0;
    for (std::size_t s = 0; s < times.forward.size(); ++s) {
      slowest = std::max(slowest, times.forward[s] + times.backward[s]);
    }
    CHECK(slowest == Approx(least));
  }
  CHECK(found > 20);
}

TEST_CASE("baselines are found by name, and refuse what they cannot cut") {
  for (const Baseline& baseline : baselines()) CHECK(&find_baseline(baseline.name) == &baseline);
  CHECK_THROWS_WITH(find_baseline("pipedreem"), ContainsSubstring("did you mean 'pipedream'?"));
  CutProblem problem = random_problem(1);
  problem.parameters.pop_back();
  for (const Baseline& baseline : baselines()) CHECK_THROWS_AS(baseline.split(problem), InputError);
  problem = random_problem(1);
  problem.messages.assign(problem.forward.size(), Seconds{});
  for (const Baseline& baseline : baselines()) CHECK_THROWS_AS(baseline.split(problem), InputError);
}
