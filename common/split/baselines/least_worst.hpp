// The dynamic program that planners of pipelines share: cuts whose worst stage is least, whatever a stage counts.
#pragma once

#include <algorithm>
#include <vector>

#include "common/split/baselines/baselines.hpp"
#include "common/split/chain.hpp"

namespace plumb {

// Throws InputError as baselines.hpp says.
void require_sound(const CutProblem& problem);

// Times of the blocks before each block.
[[nodiscard]] inline std::vector<Seconds> times_before(const CutProblem& problem) {
  std::vector<Seconds> before = {{}};
  for (std::size_t block = 0; block < problem.forward.size(); ++block) {
    before.push_back(before.back() + problem.forward[block] + problem.backward[block]);
  }
  return before;
}

// A[s][j] = min over k of max(A[s − 1][k], cost(s, k, j)), where stage s holds the blocks [k, j). Of equal cuts the
// earliest, from the last one on. O(blocks² · stages).
template <class Cost>
[[nodiscard]] Split least_worst_split(int blocks, int stages, const Cost& cost) {
  const auto row = static_cast<std::size_t>(blocks) + 1;
  std::vector<std::vector<Seconds>> worst(static_cast<std::size_t>(stages), std::vector<Seconds>(row, longest_time));
  std::vector<std::vector<int>> from(static_cast<std::size_t>(stages), std::vector<int>(row, 0));
  for (int end = 1; end <= blocks; ++end) worst[0][static_cast<std::size_t>(end)] = cost(0, 0, end);
  for (int stage = 1; stage < stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    for (int end = stage + 1; end <= blocks; ++end) {
      const auto j = static_cast<std::size_t>(end);
      for (int cut = stage; cut < end; ++cut) {
        const Seconds time = std::max(worst[s - 1][static_cast<std::size_t>(cut)], cost(stage, cut, end));
        if (!(time < worst[s][j])) continue;
        worst[s][j] = time;
        from[s][j] = cut;
      }
    }
  }
  std::vector<int> cuts(static_cast<std::size_t>(stages), blocks);
  for (auto stage = static_cast<std::size_t>(stages) - 1; stage > 0; --stage) {
    cuts[stage - 1] = from[stage][static_cast<std::size_t>(cuts[stage])];
  }
  return split_from_cuts(cuts);
}

}  // namespace plumb
