#include "common/cost/collective_time.hpp"

#include <algorithm>

namespace plumb {

Seconds collective_time(const Machine& machine, Collective kind, double bytes, const GroupPlacement& group) {
  if (group.ranks <= 1) return {};
  const double n = group.ranks;
  BytesPerSecond bandwidth = machine.collective_bandwidth.value;
  if (group.ranks > group.per_machine) {
    bandwidth = std::min(bandwidth, machine.outside.bandwidth.value * static_cast<double>(group.per_machine));
  }
  const Seconds latency = machine.collective_latency.value + machine.collective_latency_per_rank.value * n;
  const Seconds pass = {(n - 1) / n * bytes / bandwidth.value};
  switch (kind) {
    case Collective::all_reduce:
      return latency + 2 * pass;
    case Collective::all_to_all:
      return latency + pass;
    default:
      return (latency + 2 * pass) / 2;
  }
}

}  // namespace plumb
