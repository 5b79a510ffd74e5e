#include "sim/platform.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/error.hpp"
#include "common/cluster/machine.hpp"

namespace plumb::sim {

Platform platform_of(const PipelineCosts& costs, int ranks) {
  return {.ranks = ranks,
          .ranks_per_machine = costs.ranks_per_machine,
          .cores_per_machine = costs.cores_per_machine,
          .inside = costs.inside,
          .outside = costs.outside};
}

bool one_machine(const Platform& platform, int from, int to) {
  return machine_of(from, platform.ranks_per_machine) == machine_of(to, platform.ranks_per_machine);
}

int ranks_on_machine(const Platform& platform, int machine) {
  return std::clamp(platform.ranks - machine * platform.ranks_per_machine, 0, platform.ranks_per_machine);
}

bool shares_cores(const Platform& platform, int machine) {
  return platform.cores_per_machine > 0 && ranks_on_machine(platform, machine) > platform.cores_per_machine;
}

const TransferCost& port_between(const Platform& platform, int from, int to) {
  return one_machine(platform, from, to) ? platform.inside : platform.outside;
}

void require_valid(const Platform& platform) {
  if (platform.ranks < 1 || platform.ranks_per_machine < 1 || platform.cores_per_machine < 0) {
    throw InputError("platform", "expected at least one rank, one rank per machine and no negative number of cores");
  }
  const auto check = [](const TransferCost& port, const std::string& name) {
    if (!std::isfinite(port.latency.value) || port.latency.value < 0) {
      throw InputError("platform", "the latency " + name + " a machine must be zero or more seconds");
    }
    if (!(port.bandwidth.value > 0)) {
      throw InputError("platform", "the bandwidth " + name + " a machine must be above zero bytes per second");
    }
  };
  const bool single = platform.ranks <= platform.ranks_per_machine;
  if (platform.ranks > 1 && platform.ranks_per_machine > 1) check(platform.inside, "inside");
  if (!single) check(platform.outside, "outside");
}

}  // namespace plumb::sim
