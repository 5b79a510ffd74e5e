// What the messages between two stages of different data degrees have of the links of a cluster.
#pragma once

#include "common/cluster/machine.hpp"
#include "common/cost/costs.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// `before` and `behind`: of one microbatch, as a rank of each stage holds it. All ranks of the two stages send their
// shares at once (common/layout/message_shares.hpp), and the way is as fast as its busiest port: of a device inside a
// machine, a NIC, the uplink of a PCIe switch or a leaf, a site's link. Messages of other stages on the same ports are
// not counted: all ranks simulated (common/planner/unfolded.hpp) have them.
[[nodiscard]] BoundaryCost boundary_between(const Layout& layout, const Cluster& cluster, int from_stage, int to_stage,
                                            Bytes before, Bytes behind);

}  // namespace plumb
