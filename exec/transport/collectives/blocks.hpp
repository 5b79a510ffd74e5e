// How much of a buffer an all-reduce adds at a time, so that copies and sums stay in the cache and need little memory.
#pragma once

#include <cstddef>
#include <vector>

namespace plumb::exec {

// Elements of each block, at least one block, together `elements`. Each is cut into a part for each of `ranks`, which
// has `few` elements (at least 1), fewer in the last block; of the first block twice that and one for each block that
// follows. So of two sizes neither has the other's blocks with some more behind them: ranks whose sizes differ meet a
// message of another length, before one of them takes the other's blocks for those of its next call.
[[nodiscard]] std::vector<std::size_t> blocks_of(std::size_t elements, std::size_t ranks, std::size_t few);

}  // namespace plumb::exec
