#include "common/layout/shared_ports.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

namespace plumb {

PortSharing port_sharing(const Layout& layout, int devices) {
  const int all = ranks(layout);
  const int stride = pipeline_stride(layout);
  if (devices <= 1) return {};
  if (layout.pipeline == 1 || stride % devices == 0) return {.together = std::min(devices, all), .stages = 1};
  // Ports repeat when both the stages and the ports begin anew.
  const auto period = std::lcm(std::int64_t{devices}, std::int64_t{stride} * layout.pipeline);
  PortSharing most;
  for (int first = 0; first < std::min<std::int64_t>(period, all); first += devices) {
    std::map<int, int> of_stage;
    for (int rank = first; rank < std::min(first + devices, all); ++rank) {
      most.together = std::max(most.together, ++of_stage[rank / stride % layout.pipeline]);
    }
    most.stages = std::max(most.stages, static_cast<int>(of_stage.size()));
  }
  return most;
}

int devices_per_nic(const Machine& machine) { return machine.nics > 0 ? machine.devices / machine.nics : 1; }

int stage_ranks_per_port(const Layout& layout, int stage, int devices) {
  if (devices <= 1) return 1;
  const int first = first_rank(layout, stage);
  const int end = first + stage_width(layout, stage);
  int most = 0;
  for (int rank = first; rank < end; rank = (rank / devices + 1) * devices) {
    most = std::max(most, std::min(end, (rank / devices + 1) * devices) - rank);
  }
  return most;
}

namespace {

// Flows over the uplinks of each switch, up and down, in units of what one rank sends to the next: of the first
// machine, or with data degrees by stage of all that the stage is on.
double busiest_uplink(const Layout& layout, MeshAxis axis, const Machine& machine, int stage) {
  const auto pipeline = static_cast<std::size_t>(MeshAxis::pipeline);
  std::map<int, double> up;
  std::map<int, double> down;
  for (int rank = 0; rank < (has_stage_data(layout) ? ranks(layout) : std::min(machine.devices, ranks(layout)));
       ++rank) {
    if (coordinates(layout, rank).at(pipeline) != stage) continue;
    const std::vector<int> members = group(layout, rank, axis);
    std::vector<int> here;
    std::ranges::copy_if(members, std::back_inserter(here), [&](int member) {
      return machine_of(member, machine.devices) == machine_of(rank, machine.devices);
    });
    const auto at = std::ranges::find(here, rank) - here.begin();
    const int next = here[static_cast<std::size_t>(at + 1) % here.size()];
    const int own = rank / machine.devices_per_switch;
    const int other = next / machine.devices_per_switch;
    if (own != other) {
      up[own] += 1;
      down[other] += 1;
    }
    if (here.size() == members.size()) continue;
    up[own] += 1 / static_cast<double>(here.size());
    down[own] += 1 / static_cast<double>(here.size());
  }
  double most = 0;
  for (const auto& [port, passes] : up) most = std::max(most, passes);
  for (const auto& [port, passes] : down) most = std::max(most, passes);
  return most;
}

// The same over the borders between so many neighbouring machines and the others: every rank sends its part of a ring
// to one on its group's next machine.
double busiest_border(const Layout& layout, MeshAxis axis, const Machine& machine, int nodes, int stage) {
  const auto pipeline = static_cast<std::size_t>(MeshAxis::pipeline);
  std::map<int, double> up;
  std::map<int, double> down;
  for (int rank = 0; rank < ranks(layout); ++rank) {
    if (coordinates(layout, rank).at(pipeline) != stage) continue;
    const int own = machine_of(rank, machine.devices);
    std::map<int, int> members;  // by machine
    for (const int member : group(layout, rank, axis)) ++members[machine_of(member, machine.devices)];
    auto next = members.upper_bound(own);
    if (next == members.end()) next = members.begin();
    if (own / nodes == next->first / nodes) continue;
    up[own / nodes] += 1.0 / members[own];
    down[next->first / nodes] += 1.0 / members[own];
  }
  double most = 0;
  for (const auto& [border, passes] : up) most = std::max(most, passes);
  for (const auto& [border, passes] : down) most = std::max(most, passes);
  return most;
}

}  // namespace

GroupWays group_ways(const Layout& layout, MeshAxis axis, const Cluster& cluster, int stage) {
  const Machine& machine = cluster.machine;
  GroupWays ways;
  if (degree(as_all(layout, stage), axis) <= 1) return ways;
  ways.ranks_per_nic = has_stage_data(layout) ? stage_ranks_per_port(layout, stage, devices_per_nic(machine))
                                              : port_sharing(layout, devices_per_nic(machine)).together;
  if (machine.devices_per_switch > 0) ways.uplink_passes = busiest_uplink(layout, axis, machine, stage);
  const auto passes = [&](int nodes) { return nodes > 0 ? busiest_border(layout, axis, machine, nodes, stage) : 0.0; };
  ways.leaf_passes = passes(cluster.nodes_per_leaf);
  ways.site_passes = passes(cluster.nodes_per_site);
  return ways;
}

}  // namespace plumb
