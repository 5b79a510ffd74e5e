// When sums of neighbours are added up while summands come one after the other.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

namespace plumb::exec {

// Pairwise summation (Higham 1993) with as few sums kept as a number of summands has ones in binary: they stand in a
// row, the largest first, no two of a size, as a binary counter has its ones.
class PairwiseCounter {
 public:
  // One more summand stands behind the row. So many times the last two of the row are then added up.
  [[nodiscard]] int add() { return std::countr_zero(++summands_); }
  // There are no more: so many times. Afterwards there is none. Precondition: there was one.
  [[nodiscard]] int end() { return std::popcount(std::exchange(summands_, 0)) - 1; }

 private:
  std::uint64_t summands_ = 0;
};

}  // namespace plumb::exec
