#include "sim/platform.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "common/base/error.hpp"
#include "common/layout/shared_ports.hpp"

namespace plumb::sim {

Platform platform_of(const PipelineCosts& costs, int ranks) {
  if (!costs.boundaries.empty()) {
    // Each boundary has a way of its own, whose time is all delay here.
    const TransferCost unlimited{.latency = {}, .bandwidth = {std::numeric_limits<double>::infinity()}};
    return {.ranks = ranks, .ranks_per_machine = 1, .inside = unlimited, .outside = unlimited};
  }
  return {.ranks = ranks,
          .ranks_per_machine = costs.ranks_per_machine,
          .cores_per_machine = costs.cores_per_machine,
          .cores_per_rank = costs.cores_per_rank,
          .inside = costs.inside,
          .outside = costs.outside,
          .across = costs.across,
          .shared = costs.shared,
          .collective = costs.vocabulary.inside};
}

Platform platform_of(const Cluster& cluster, const PipelineCosts& costs, int ranks) {
  const Machine& machine = cluster.machine;
  Platform platform{.ranks = ranks,
                    .ranks_per_machine = machine.devices,
                    .cores_per_machine = machine.cores,
                    .inside = costs.inside,
                    .outside = {.latency = costs.outside.latency, .bandwidth = machine.outside.bandwidth.value},
                    .across = costs.across,
                    .collective = machine.collective_bandwidth.value};
  platform.shared = {.ranks_per_nic = devices_per_nic(machine),
                     .nic = machine.outside.bandwidth.value,
                     .ranks_per_switch = machine.devices_per_switch,
                     .uplink = machine.uplink.value,
                     .ranks_per_leaf = cluster.nodes_per_leaf * machine.devices,
                     .leaf = leaf_bandwidth(cluster),
                     .ranks_per_site = cluster.nodes_per_site * machine.devices,
                     .site = cluster.between_sites.bandwidth.value,
                     .site_latency = cluster.between_sites.latency.value};
  return platform;
}

int ranks_on_machine(const Platform& platform, int machine) {
  return std::clamp(platform.ranks - machine * platform.ranks_per_machine, 0, platform.ranks_per_machine);
}

bool shares_cores(const Platform& platform, int machine) {
  const int busy = ranks_on_machine(platform, machine) * platform.cores_per_rank;
  return platform.cores_per_machine > 0 && busy > platform.cores_per_machine;
}

void require_valid(const Platform& platform) {
  if (platform.ranks < 1 || platform.ranks_per_machine < 1 || platform.cores_per_machine < 0 ||
      platform.cores_per_rank < 1) {
    throw InputError(
        "platform",
        "expected at least one rank, one rank per machine, one core per rank and no negative number of cores");
  }
  const auto check = [](const TransferCost& port, const std::string& name) {
    if (!std::isfinite(port.latency.value) || port.latency.value < 0) {
      throw InputError("platform", "the latency " + name + " a machine must be zero or more seconds");
    }
    if (!(port.bandwidth.value > 0)) {
      throw InputError("platform", "the bandwidth " + name + " a machine must be above zero bytes per second");
    }
  };
  const SharedLinks& shared = platform.shared;
  if (shared.ranks_per_nic < 1 || shared.ranks_per_switch < 0 || shared.ranks_per_leaf < 0 ||
      shared.ranks_per_site < 0) {
    throw InputError("platform", "expected at least one rank on a NIC and no negative number under a switch");
  }
  const auto slow = [](int ranks, BytesPerSecond bandwidth) { return ranks > 0 && !(bandwidth.value > 0); };
  if (slow(shared.ranks_per_switch, shared.uplink) || slow(shared.ranks_per_leaf, shared.leaf) ||
      slow(shared.ranks_per_site, shared.site)) {
    throw InputError("platform", "the bandwidth of an uplink must be above zero bytes per second");
  }
  const bool single = platform.ranks <= platform.ranks_per_machine;
  if (platform.ranks > 1 && platform.ranks_per_machine > 1) check(platform.inside, "inside");
  if (!single) check(platform.outside, "outside");
}

}  // namespace plumb::sim
