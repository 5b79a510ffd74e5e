#include "exec/transport/collectives/blocks.hpp"

#include <algorithm>

namespace plumb::exec {

std::vector<std::size_t> blocks_of(std::size_t elements, std::size_t ranks, std::size_t few) {
  const std::size_t alone = 2 * few * ranks;  // the most that one block has
  // Each that follows adds its own elements, and one a part to the first.
  const std::size_t step = (few + 1) * ranks;
  const std::size_t following = elements <= alone ? 0 : (elements - alone + step - 1) / step;
  std::vector<std::size_t> blocks{std::min(elements, alone + following * ranks)};
  std::size_t rest = elements - blocks.front();
  for (std::size_t block = 0; block < following; ++block) {
    blocks.push_back(std::min(rest, few * ranks));
    rest -= blocks.back();
  }
  return blocks;
}

}  // namespace plumb::exec
