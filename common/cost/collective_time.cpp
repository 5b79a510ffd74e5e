#include "common/cost/collective_time.hpp"

#include <algorithm>
#include <bit>

namespace plumb {
namespace {

int machines(const GroupPlacement& group) { return (group.ranks + group.per_machine - 1) / group.per_machine; }

Seconds alpha(const Machine& machine, double ranks) {
  return machine.collective_latency.value + machine.collective_latency_per_rank.value * ranks;
}

BytesPerSecond nic_share(const Machine& machine, const GroupPlacement& group) {
  return machine.outside.bandwidth.value / group.ranks_per_nic;
}

// B of the header.
BytesPerSecond bandwidth(const Machine& machine, const GroupPlacement& group) {
  BytesPerSecond least = machine.collective_bandwidth.value;
  if (group.uplink_passes > 0) least = std::min(least, machine.uplink.value / group.uplink_passes);
  if (group.ranks == group.per_machine) return least;
  if (group.border.value > 0) least = std::min(least, group.border);
  // Behind a PCIe switch what leaves the machine goes through the device's one port as well.
  if (machine.devices_per_switch > 0) {
    least = std::min(least, machine.inside.bandwidth.value);
    if (group.per_machine > 1) least = std::min(least, machine.inside.bandwidth.value / (1 + 1.0 / group.per_machine));
  }
  return std::min(least, nic_share(machine, group) * static_cast<double>(group.per_machine));
}

// Every rank sends `sent` bytes in all at B.
CollectivePhase phase(const Machine& machine, const GroupPlacement& group, Seconds latency, double sent) {
  const BytesPerSecond rate = bandwidth(machine, group);
  CollectivePhase result{.latency = latency, .time = latency + Seconds{sent / rate.value}};
  if (group.per_machine > 1) result.inside = sent;
  if (group.ranks == group.per_machine) return result;
  // A NIC that is faster than rings are alone would carry the flow too fast.
  const double faster = nic_share(machine, group) / machine.collective_bandwidth.value;
  result.outside = sent / group.per_machine * (group.per_machine == 1 ? std::max(1.0, faster) : 1);
  return result;
}

CollectivePhase ring_phase(const Machine& machine, Collective kind, double bytes, const GroupPlacement& group) {
  const double n = group.ranks;
  const double pass = (n - 1) / n * bytes;
  const Seconds all = alpha(machine, n) + group.step_latency * (2 * (n - 1));
  switch (kind) {
    case Collective::all_reduce:
      return phase(machine, group, all, 2 * pass);
    case Collective::all_to_all:
      return phase(machine, group, alpha(machine, n) + group.step_latency * (n - 1), pass);
    default:
      return phase(machine, group, all / 2, pass);
  }
}

int rounded_log2(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

// In bytes at `collective_bandwidth`, as a ring's: what the switch moves faster takes less of the ports.
CollectivePhase in_switch_phase(const Machine& machine, double bytes) {
  const double d = machine.devices;
  const double seconds = 2 * (d - 1) / d * bytes / machine.switch_bandwidth.value.value;
  const Seconds latency = alpha(machine, 2);
  return {.latency = latency,
          .inside = seconds * machine.collective_bandwidth.value.value,
          .time = latency + Seconds{seconds}};
}

}  // namespace

bool applies(CollectiveAlgorithm algorithm, const Machine& machine, Collective kind, const GroupPlacement& group) {
  const bool reduces = kind == Collective::all_reduce && group.ranks > 1;
  const bool outside = group.ranks > group.per_machine;
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      return true;
    case CollectiveAlgorithm::tree:
      return reduces && outside && machines(group) > 2;
    case CollectiveAlgorithm::hierarchical:
      return reduces && outside && group.per_machine > 1 && group.ranks % group.per_machine == 0;
    case CollectiveAlgorithm::in_switch:
      return reduces && !outside && machine.switch_bandwidth.value.value > 0 && machine.devices > 1;
  }
  return false;
}

CollectivePlan plan_of(CollectiveAlgorithm algorithm, const Machine& machine, Collective kind, double bytes,
                       const GroupPlacement& group) {
  CollectivePlan plan{.algorithm = algorithm};
  const auto add = [&](const CollectivePhase& phase) {
    plan.phases.at(static_cast<std::size_t>(plan.count++)) = phase;
  };
  if (group.ranks <= 1) return plan;
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      add(ring_phase(machine, kind, bytes, group));
      break;
    case CollectiveAlgorithm::tree:
      // Up and down again, over the border once each way.
      add(phase(machine, group,
                alpha(machine, group.per_machine + rounded_log2(machines(group))) + group.step_latency * 2.0,
                2 * bytes));
      break;
    case CollectiveAlgorithm::hierarchical: {
      GroupPlacement inside = group;
      inside.ranks = group.per_machine;
      inside.step_latency = {};
      GroupPlacement between = group;
      between.ranks = machines(group);
      between.per_machine = 1;
      between.uplink_passes *= group.per_machine;  // no fewer than the ranks under a switch
      between.border = between.border / static_cast<double>(group.per_machine);
      add(ring_phase(machine, Collective::reduce_scatter, bytes, inside));
      add(ring_phase(machine, Collective::all_reduce, bytes / group.per_machine, between));
      add(ring_phase(machine, Collective::all_gather, bytes, inside));
      break;
    }
    case CollectiveAlgorithm::in_switch:
      add(in_switch_phase(machine, bytes));
      break;
  }
  return plan;
}

Seconds time_of(const CollectivePlan& plan) {
  Seconds sum;
  for (const CollectivePhase& phase : plan.phases) sum += phase.time;
  return sum;
}

CollectivePlan piece_of(CollectivePlan plan, int pieces) {
  for (CollectivePhase& phase : plan.phases) {
    phase.latency = phase.latency / pieces;
    phase.inside /= pieces;
    phase.outside /= pieces;
    phase.time = phase.time / pieces;
  }
  return plan;
}

CollectivePlan fastest_collective(const Machine& machine, Collective kind, double bytes, const GroupPlacement& group) {
  CollectivePlan best = plan_of(CollectiveAlgorithm::ring, machine, kind, bytes, group);
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::tree, CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::in_switch}) {
    if (!applies(algorithm, machine, kind, group)) continue;
    const CollectivePlan other = plan_of(algorithm, machine, kind, bytes, group);
    if (time_of(other) < time_of(best)) best = other;
  }
  return best;
}

Seconds collective_time(const Machine& machine, Collective kind, double bytes, const GroupPlacement& group) {
  return time_of(fastest_collective(machine, kind, bytes, group));
}

}  // namespace plumb
