// What the simulated machines look like: ranks, the cores they compute on, and the ports they send through.
#pragma once

#include "common/cluster/machine.hpp"
#include "common/cost/costs.hpp"

namespace plumb::sim {

// Each rank has one full-duplex port to the ranks of its machine; to all others one of its own, or a part of a NIC. A
// machine's ranks compute on its cores. The way between two is `transfer_between` (common/cost/costs.hpp).
struct Platform {
  int ranks = 1;
  int ranks_per_machine = 1;
  int cores_per_machine = 0;  // 0: every rank computes on a device of its own
  int cores_per_rank = 1;     // that a rank computes on: more where it stands for several
  TransferCost inside;        // of a message alone
  TransferCost outside;
  TransferCost across = {};  // inside a machine, under two PCIe switches
  SharedLinks shared = {};
  // Of a rank's port for collectives inside a machine; 0: none are simulated. NVLink carries them faster than it does a
  // message to one peer, and the port is as fast as the faster of the two.
  BytesPerSecond collective = {};
  bool operator==(const Platform&) const = default;
};

// Of one rank for each stage. With data degrees by stage nothing contends: all ranks simulated do.
[[nodiscard]] Platform platform_of(const PipelineCosts& costs, int ranks);

// Of all ranks of a cluster of such machines, whose messages are as `costs` says of its machine.
[[nodiscard]] Platform platform_of(const Cluster& cluster, const PipelineCosts& costs, int ranks);

[[nodiscard]] int ranks_on_machine(const Platform& platform, int machine);

// True if the ranks of this machine compute on more than its cores, so that they slow each other down.
[[nodiscard]] bool shares_cores(const Platform& platform, int machine);

// Throws InputError for what cannot be simulated: no ranks, negative or undefined latencies, bandwidths that are not
// above zero (infinite is allowed).
void require_valid(const Platform& platform);

}  // namespace plumb::sim
