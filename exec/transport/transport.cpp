#include "exec/transport/transport.hpp"

#include <algorithm>
#include <functional>
#include <string>

namespace plumb::exec {

MomentPtr Transport::collective(const CollectiveCall& /*call*/) {
  throw RunError("rank " + std::to_string(rank()), "this transport has no streams, so no collectives on them");
}

std::size_t position_in(std::span<const int> group, int rank) {
  const auto self = std::ranges::find(group, rank);
  const bool ascending = std::ranges::adjacent_find(group, std::greater_equal<>{}) == group.end();
  if (self == group.end() || !ascending) {
    throw RunError("rank " + std::to_string(rank), "the group of a collective must be ascending and hold this rank");
  }
  return static_cast<std::size_t>(self - group.begin());
}

}  // namespace plumb::exec
