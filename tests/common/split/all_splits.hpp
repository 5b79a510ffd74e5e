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

}  // namespace plumb::testing
