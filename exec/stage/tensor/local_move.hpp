// A move of a placed block as one rank makes it: with which ranks, and along which dimension of the tensor's memory.
#pragma once

#include <cstddef>
#include <vector>

#include "common/placement/placed_block.hpp"

namespace plumb::exec {

struct LocalMove {
  const PlacedMove* move = nullptr;  // null: nothing moves
  std::vector<int> group = {};       // positions in the tensor group, ascending: in the order of their parts
  int dimension = 0;                 // of what is gathered or scattered
  std::ptrdiff_t place = 0;          // among the block's moves, in the order of its program

  explicit operator bool() const { return move != nullptr; }
};

// Values lie as [batch, tokens, …], matrices as [out, in], a table of the vocabulary as [vocabulary, hidden]. Of a null
// `move` none. It points into the placed block, which must outlive it. Throws RunError for what has another order of
// parts than of ranks, or no place in such a memory.
[[nodiscard]] LocalMove local_move(const PlacedBlock& block, const PlacedMove* move, int position);

}  // namespace plumb::exec
