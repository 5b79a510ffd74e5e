// Groups of ranks: a run of them, and how the others stand around a rank of a group.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "exec/transport/transport.hpp"

namespace plumb::exec {

// first, first + 1 …: so many.
[[nodiscard]] inline std::vector<int> ranks_from(int first, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

// Positions in a group as a rank of it comes to them: it sends to the next one first and takes from the one before, so
// that not all talk to the same first.
class PlaceInGroup {
 public:
  // Throws as position_in.
  PlaceInGroup(std::span<const int> group, int rank) : position_(position_in(group, rank)), size_(group.size()) {}

  [[nodiscard]] std::size_t position() const { return position_; }  // its own
  [[nodiscard]] std::size_t after(std::size_t distance) const { return (position_ + distance) % size_; }
  [[nodiscard]] std::size_t before(std::size_t distance) const { return (position_ + size_ - distance) % size_; }

 private:
  std::size_t position_;
  std::size_t size_;
};

}  // namespace plumb::exec
