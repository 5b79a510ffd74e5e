// What a rank's host keeps for it, and what moves between the two once a step where optimizer states stand there.
#pragma once

#include <vector>

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"

namespace plumb {

// Of a block, or the sums of a stage's blocks.
struct HostMoves {
  Bytes kept = {};  // states, and the buffer of gradients, in which updated narrower weights then go up
  Bytes down = {};  // gradients of what this rank updates
  Bytes up = {};    // the updated weights
  Seconds copying_down = {};
  Seconds updating = {};
  Seconds copying_up = {};
  bool operator==(const HostMoves&) const = default;
};
void operator+=(HostMoves& sum, const HostMoves& moves);

// Over a device's port to its host, alone: latency + bytes / bandwidth. No bytes take no time.
[[nodiscard]] Seconds host_copy_time(const HostProfile& host, Bytes bytes);

// How long the pieces of a stage take in their order. Where copies and the update go beside each other (`overlapped`:
// a device copies by itself, each way over its own half of the port) each piece goes down when the one before has,
// is updated when it is down and the one before is updated, and goes up likewise: a flow shop of three machines
// (Johnson 1954), whose end is the recurrence. ZeRO-Offload (arXiv 2101.06840, section 4.1) tiles its update so. Else,
// as on a host that copies with the core that updates, the sum of all.
[[nodiscard]] Seconds offloaded_step_time(const std::vector<HostMoves>& pieces, bool overlapped);

}  // namespace plumb
