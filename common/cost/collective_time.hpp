// How long collectives take on a machine and between machines.
#pragma once

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"
#include "common/model/operations.hpp"

namespace plumb {

using Collective = OperationMessage::Collective;

// Where the ranks of a group stand: so many of them on each machine.
struct GroupPlacement {
  int ranks = 1;
  int per_machine = 1;
  bool operator==(const GroupPlacement&) const = default;
};

// By rings, of `bytes` on every rank (of an all-gather the gathered, of a reduce-scatter the whole tensor):
//   all-reduce α(n) + 2(n−1)/n · bytes/B; all-gather and reduce-scatter half of it;
//   all-to-all α(n) + (n−1)/n · bytes/B.
// B is the links' inside one machine; across machines no more than the shares of the NICs that the group's ranks on one
// machine have. α(n) = base + n · per rank. Zero for one rank.
[[nodiscard]] Seconds collective_time(const Machine& machine, Collective kind, double bytes,
                                      const GroupPlacement& group);

}  // namespace plumb
