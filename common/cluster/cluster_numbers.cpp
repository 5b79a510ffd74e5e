#include "common/cluster/cluster_numbers.hpp"

namespace plumb {
namespace {

constexpr const char* sites_bandwidth = "sites.bandwidth";
constexpr const char* sites_latency = "sites.latency";

}  // namespace

std::vector<ClusterNumber> numbers_of(const Cluster& cluster) {
  std::vector<ClusterNumber> numbers;
  const auto add = [&](const char* name, bool more_is_faster, double value) {
    if (value != 0) numbers.push_back({.name = name, .more_is_faster = more_is_faster, .value = value});
  };
  if (cluster.nodes_per_leaf > 0) add("oversubscription", false, cluster.oversubscription);
  if (cluster.nodes_per_site > 0) {
    add(sites_bandwidth, true, cluster.between_sites.bandwidth.value.value);
    add(sites_latency, false, cluster.between_sites.latency.value.value);
  }
  return numbers;
}

Cluster with_factor(Cluster cluster, const ClusterNumber& number, double factor) {
  if (number.name == sites_bandwidth) {
    cluster.between_sites.bandwidth.value.value = number.value * factor;
  } else if (number.name == sites_latency) {
    cluster.between_sites.latency.value.value = number.value * factor;
  } else {
    cluster.oversubscription = number.value * factor;
  }
  return cluster;
}

}  // namespace plumb
