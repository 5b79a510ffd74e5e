// Which ranks of a layout use a NIC, the uplink of a PCIe switch or the cores of a CPU at the same time.
#pragma once

#include <cstdint>

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

// Ranks of one stage, the most that any machine has, of a layout without data degrees by stage. They compute at the
// same time.
[[nodiscard]] int stage_ranks_on_machine(const Layout& layout, const Machine& machine);

// How many times as long as on a core of its own a rank computes because its stage's ranks on a machine alone are more
// than its cores: ranks / cores, as they share them evenly. 1 where there are enough, or each has a device of its own.
[[nodiscard]] double core_slowdown(const Layout& layout, const Machine& machine);

// Ranks that a group has on a machine, of a group of the axis that is placed worst: a group that stands on several
// machines before one that does not, then the one that has the fewest ranks on one of its machines. Equal to the degree
// where every group stays in a machine. O(1) where groups and machines divide each other, else O(devices³) at most,
// however many ranks there are.
[[nodiscard]] int fewest_on_a_machine(const Layout& layout, MeshAxis axis, int devices);

// Whose groups run at the same time: those of any one stage, or of all stages (an upper bound, for the reductions of
// gradients, which end a stage's step at a time of its own, and for tensor groups, whose stages also compute).
enum class Together : std::uint8_t { one_stage, all_stages };

// What the collectives of one axis make of the ways out of a switch and a machine, all groups that run together at
// once.
struct GroupLinks {
  int ranks_per_nic = 1;  // that send to other machines
  // How often what one rank sends to the next goes over the busiest uplink of a switch, in rings that take the ranks in
  // their order: once for each neighbour under another switch, and for each rank its part of what leaves the machine.
  double uplink_passes = 0;
  double leaf_passes = 0;  // the same over the busiest leaf's uplinks, and over the link of a site
  double site_passes = 0;
  bool operator==(const GroupLinks&) const = default;
};
// With data degrees by stage, of the groups of one pipeline rank; else of all.
[[nodiscard]] GroupLinks group_links(const Layout& layout, MeshAxis axis, const Cluster& cluster,
                                     Together together = Together::one_stage, int stage = 0);

}  // namespace plumb
