// Blocks that need to be looked at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/model/layer.hpp"

namespace plumb {

// Of each block (embedding, layers, head) the first that is like it: itself where none before it is. Layers count as
// equal that are, where `same(block, earlier)` says so too, which must be symmetric and transitive; embedding and head
// are like nothing else. O(blocks · kinds) calls.
template <class Same>
[[nodiscard]] std::vector<std::size_t> first_equal(const std::vector<Layer>& layers, const Same& same) {
  const auto is_layer = [&](std::size_t block) { return block > 0 && block <= layers.size(); };
  const auto equal = [&](std::size_t block, std::size_t earlier) {
    return is_layer(block) && is_layer(earlier) && layers[earlier - 1] == layers[block - 1] && same(block, earlier);
  };
  std::vector<std::size_t> first;
  std::vector<std::size_t> kinds;
  for (std::size_t block = 0; block < layers.size() + 2; ++block) {
    const auto known = std::ranges::find_if(kinds, [&](std::size_t earlier) { return equal(block, earlier); });
    first.push_back(known == kinds.end() ? block : *known);
    if (known == kinds.end()) kinds.push_back(block);
  }
  return first;
}

// Where equal layers are alike.
[[nodiscard]] inline std::vector<std::size_t> first_equal(const std::vector<Layer>& layers) {
  return first_equal(layers, [](std::size_t, std::size_t) { return true; });
}

}  // namespace plumb
