// UNSHARD: a stage's weights, of which each data-parallel rank has updated or keeps its part, on all of them.
#pragma once

#include <span>

#include "common/base/units.hpp"
#include "exec/device/device.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Of each weight an all-gather of equal_parts, in place, in the order of the stage's list; on an asynchronous device
// all as one launch, for which compute waits. `group`: ranks of `world`. Returns the bytes of the whole weights. Throws
// as Collectives::all_gather and Transport::collective.
[[nodiscard]] Bytes gather_weights(Stage& stage, Transport& world, Device& device, std::span<const int> group,
                                   Clock::time_point deadline);

}  // namespace plumb::exec
