// Which ranks of a layout use a NIC or the uplink of a PCIe switch at the same time.
#pragma once

#include "common/cluster/machine.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// Of a port that several neighbouring devices share. Ranks of one stage do the same at the same time, so `together` of
// them each have that part of it; ranks of other stages use it when they do.
struct PortSharing {
  int together = 1;  // ranks of one stage, the most that any port has
  int stages = 1;    // different ones, the most that any port has
  bool operator==(const PortSharing&) const = default;
};

// Of a port for every `devices` neighbouring ranks, of a consistent layout; exact also where stages and ports do not
// divide each other. O(1) where all ranks of a port are of one stage, else O(ranks).
[[nodiscard]] PortSharing port_sharing(const Layout& layout, int devices);

// How many neighbouring devices have one NIC: 1 if each has a port of its own.
[[nodiscard]] int devices_per_nic(const Machine& machine);

// Of the ranks of one stage with data degrees by stage: the most of them that any port has, of ports for every
// `devices` neighbouring ranks.
[[nodiscard]] int stage_ranks_per_port(const Layout& layout, int stage, int devices);

// What the collectives of one axis make of the ways out of a switch and a machine, all groups of a stage at once.
struct GroupWays {
  int ranks_per_nic = 1;  // that send to other machines
  // How often what one rank sends to the next goes over the busiest uplink of a switch, in rings that take the ranks in
  // their order: once for each neighbour under another switch, and for each rank its part of what leaves the machine.
  double uplink_passes = 0;
  double leaf_passes = 0;  // the same over the busiest leaf's uplinks, and over the link of a site
  double site_passes = 0;
  bool operator==(const GroupWays&) const = default;
};
// Of the groups of one pipeline rank; without data degrees by stage those of all are alike.
[[nodiscard]] GroupWays group_ways(const Layout& layout, MeshAxis axis, const Cluster& cluster, int stage = 0);

}  // namespace plumb
