// How long collectives take on a machine and between machines, by the algorithm that is the fastest there.
#pragma once

#include <array>
#include <cstdint>

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"
#include "common/placement/collective.hpp"

namespace plumb {

// Where the ranks of a group stand: so many of them on each machine.
struct GroupPlacement {
  int ranks = 1;
  int per_machine = 1;
  int ranks_per_nic = 1;       // of all groups that run at once; each has that part of the NIC
  double uplink_passes = 0;    // of what a rank sends to the next, over the busiest uplink of a PCIe switch
  BytesPerSecond border = {};  // what a rank sends to the next, beyond leaves and sites; 0: no limit
  Seconds step_latency = {};   // of each step, where the group stands on several sites
  bool operator==(const GroupPlacement&) const = default;
};

// As NCCL names them.
enum class CollectiveAlgorithm : std::uint8_t {
  ring,          // of all ranks; between machines one ring for each rank of a machine, over its NIC
  tree,          // all-reduce in log2 steps over machines, chains inside (Sanders, Speck, Träff 2009; NCCL 2.4)
  hierarchical,  // all-reduce as reduce-scatter inside, all-reduce between machines, all-gather inside
  in_switch,     // all-reduce by the switch of a machine (NVLink SHARP)
};

// Which ranks of the group: all, or apart from each other those of ZeRO++ (`inside_shards` of common/layout).
enum class Among : std::uint8_t { all, inside, across };

// What every rank does at the same time: nothing for `latency`, then it sends `inside` bytes to the next rank of its
// machine over a port of `collective_bandwidth`, and at the same time `outside` bytes to a rank on the next machine.
struct CollectivePhase {
  Seconds latency = {};
  double inside = 0;
  double outside = 0;
  Seconds time = {};  // of the phase, when all groups that run at once have what they share
  Among among = Among::all;
  bool operator==(const CollectivePhase&) const = default;
};

struct CollectivePlan {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  std::array<CollectivePhase, 3> phases = {};
  int count = 0;  // of phases, one after the other; 0: one rank alone
  bool operator==(const CollectivePlan&) const = default;
};
[[nodiscard]] Seconds time_of(const CollectivePlan& plan);
// Of an all-gather or a reduce-scatter by a ring, one of so many equal parts of its steps.
[[nodiscard]] CollectivePlan piece_of(CollectivePlan plan, int pieces);

// Whether the machine has what the algorithm needs, the group stands so, and the algorithm does this kind.
[[nodiscard]] bool applies(CollectiveAlgorithm algorithm, const Machine& machine, Collective kind,
                           const GroupPlacement& group);

// Of `bytes` on every rank (of an all-gather the gathered, of a reduce-scatter the whole tensor), n ranks, k of them on
// each of M machines, d devices a machine:
//   ring          all-reduce α(n) + 2(n−1)/n · bytes/B; all-gather and reduce-scatter half of it;
//                 all-to-all α(n) + (n−1)/n · bytes/B
//   tree          α(k + ⌈log2 M⌉) + 2 bytes/B: of a ring's 2(n−1) steps 2(k−1 + ⌈log2 M⌉) are left
//   hierarchical  ring(all-reduce over k) + ring(all-reduce over M machines of bytes/k, B at most one NIC's share)
//   in_switch     α(2) + 2(d−1)/d · bytes/`switch_bandwidth`, whatever n: each device sends once and gets once
// B is the links' inside one machine; across machines no more than k shares of a NIC, and no more than the uplinks of
// its switches, leaves and sites pass. α(n) = base + n · per rank; between sites each step takes their latency more.
[[nodiscard]] CollectivePlan plan_of(CollectiveAlgorithm algorithm, const Machine& machine, Collective kind,
                                     double bytes, const GroupPlacement& group);

// By the fastest algorithm that applies; the ring among equals.
[[nodiscard]] CollectivePlan fastest_collective(const Machine& machine, Collective kind, double bytes,
                                                const GroupPlacement& group);
[[nodiscard]] Seconds collective_time(const Machine& machine, Collective kind, double bytes,
                                      const GroupPlacement& group);

}  // namespace plumb
