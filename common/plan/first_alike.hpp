// Blocks that need to be looked at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace plumb {

// Of each of so many blocks the first that is like it: itself where none before it is. `alike(block, earlier)` must be
// symmetric and transitive; a block need not be like itself. O(blocks · kinds) calls.
template <class Alike>
[[nodiscard]] std::vector<std::size_t> first_alike(std::size_t blocks, const Alike& alike) {
  std::vector<std::size_t> first;
  std::vector<std::size_t> kinds;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto known = std::ranges::find_if(kinds, [&](std::size_t earlier) { return alike(block, earlier); });
    first.push_back(known == kinds.end() ? block : *known);
    if (known == kinds.end()) kinds.push_back(block);
  }
  return first;
}

}  // namespace plumb
