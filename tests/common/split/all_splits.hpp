// What brute force over splits needs: all of them, and random numbers.
#pragma once

#include <functional>
#include <random>

#include "common/split/split.hpp"

namespace plumb::testing {

inline int pick(std::mt19937& random, int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); }

// All counts with the sum `layers`, the first and last at least 0, the inner ones at least 1.
inline void for_all_splits(int layers, int stages, const std::function<void(const Split&)>& visit) {
  Split split;
  const std::function<void(int)> extend = [&](int left) {
    const int stage = static_cast<int>(split.layers.size());
    if (stage + 1 == stages) {
      split.layers.push_back(left);
      visit(split);
      split.layers.pop_back();
      return;
    }
    for (int count = stage == 0 ? 0 : 1; count <= left; ++count) {
      split.layers.push_back(count);
      extend(left - count);
      split.layers.pop_back();
    }
  };
  extend(layers);
}

// Workspaces of all blocks, those of the layers alike or not, and something else that each rank needs.
inline void add_workspaces(SplitProblem& problem, std::mt19937& random, bool alike, int most) {
  const auto made_up = [&]() -> BlockWorkspace {
    return {.forward = {pick(random, 0, most)},
            .input_gradient = {pick(random, 0, most)},
            .weight_gradient = {pick(random, 0, most)},
            .kept_for_weight = {pick(random, 0, most / 2)}};
  };
  const BlockWorkspace of_all = made_up();
  for (std::size_t block = 0; block < problem.block_times.size(); ++block) {
    const bool layer = block > 0 && block + 1 < problem.block_times.size();
    problem.block_workspaces.push_back(alike && layer ? of_all : made_up());
  }
  for (std::size_t rank = 0; rank < problem.moments.size(); ++rank) {
    problem.rank_reserve.push_back({pick(random, 0, most / 2)});
  }
}

}  // namespace plumb::testing
