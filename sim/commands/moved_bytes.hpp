// What a collective of a block brings to a rank, in bytes.
#pragma once

#include "sim/commands/show_sites.hpp"

namespace plumb::sim {

// Of one microbatch; statistics are fp32, all else is of the view's precision.
[[nodiscard]] double received_bytes(const BlockView& view, const PlacedMove& each);

}  // namespace plumb::sim
