// The numbers of a cluster's network beyond its machines, by name: they have no uncertainty of their own.
#pragma once

#include <string>
#include <vector>

#include "common/cluster/machine.hpp"

namespace plumb {

struct ClusterNumber {
  std::string name = {};  // "sites.bandwidth", "sites.latency", "oversubscription": as in a scenario's `cluster`
  bool more_is_faster = true;
  double value = 0;  // bytes/s, seconds, a ratio
};

// Those that this cluster has: not zero, and of leaves and sites that there are.
[[nodiscard]] std::vector<ClusterNumber> numbers_of(const Cluster& cluster);

// The cluster with this one of its numbers times `factor`.
[[nodiscard]] Cluster with_factor(Cluster cluster, const ClusterNumber& number, double factor);

}  // namespace plumb
