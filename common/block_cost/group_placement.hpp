// Where on a cluster the ranks of a layout's groups stand.
#pragma once

#include "common/cluster/machine.hpp"
#include "common/cost/collective_time.hpp"
#include "common/cost/tensor_groups.hpp"
#include "common/layout/layout.hpp"
#include "common/layout/shared_ports.hpp"

namespace plumb {

// Where the groups on this axis stand, by the one that is placed worst: where some of them cross the border of a
// machine and others do not, all have the cost of those that do, for which the others wait. And what they share with
// the other groups that run together. With data degrees by stage the group of that stage; where machines have different
// numbers of its ranks, as if all had as few as any.
[[nodiscard]] GroupPlacement placement(const Layout& layout, MeshAxis axis, const Cluster& cluster,
                                       Together together = Together::one_stage, int stage = 0);

// Where the tensor groups stand, of a layout without data degrees by stage. Those of other stages that share ports with
// a group count as if all ran at once, an upper bound: in a full pipeline all stages work, and what they share is
// taken for as long as the longest of them.
[[nodiscard]] GroupPlacement tensor_placement(const Layout& layout, const Cluster& cluster);

// The same, and of a grid where the groups along its axes stand, all of one kind at once.
[[nodiscard]] TensorGroups tensor_groups(const Layout& layout, const Cluster& cluster);

}  // namespace plumb
