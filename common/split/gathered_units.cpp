#include "common/split/gathered_units.hpp"

#include <algorithm>

namespace plumb {

std::vector<int> unit_sizes(const BlockRange& stage, int head, int layers) {
  std::vector<int> sizes;
  for (int block = stage.first; block < stage.last;) {
    const bool alone = block == 0 || block == head;
    const int end = alone ? block + 1 : std::min({block + layers, head, stage.last});
    sizes.push_back(end - block);
    block = end;
  }
  return sizes;
}

}  // namespace plumb
