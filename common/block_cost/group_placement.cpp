#include "common/block_cost/group_placement.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "common/layout/tensor_grid.hpp"

namespace plumb {
namespace {

// Ranks of a stage's group on a machine, of those that it stands on the least.
int fewest_of_stage(const Layout& layout, MeshAxis axis, int devices, int stage) {
  std::map<int, int> members;  // by machine
  for (const int rank : group(layout, first_rank(layout, stage), axis)) ++members[machine_of(rank, devices)];
  int fewest = degree(as_all(layout, stage), axis);
  for (const auto& [machine, count] : members) fewest = std::min(fewest, count);
  return fewest;
}

}  // namespace

GroupPlacement placement(const Layout& layout, MeshAxis axis, const Cluster& cluster, Together together, int stage) {
  const int devices = cluster.machine.devices;
  const GroupLinks links = group_links(layout, axis, cluster, together, stage);
  GroupPlacement placed{.ranks = degree(as_all(layout, stage), axis),
                        .per_machine = has_stage_data(layout) ? fewest_of_stage(layout, axis, devices, stage)
                                                              : fewest_on_a_machine(layout, axis, devices),
                        .ranks_per_nic = links.ranks_per_nic,
                        .uplink_passes = links.uplink_passes};
  const auto limit = [&](BytesPerSecond bandwidth, double passes) {
    if (passes <= 0) return;
    const BytesPerSecond each = bandwidth / passes;
    placed.border = placed.border.value > 0 ? std::min(placed.border, each) : each;
  };
  limit(leaf_bandwidth(cluster), links.leaf_passes);
  limit(cluster.between_sites.bandwidth.value, links.site_passes);
  if (links.site_passes > 0) placed.step_latency = cluster.between_sites.latency.value;
  return placed;
}

GroupPlacement tensor_placement(const Layout& layout, const Cluster& cluster) {
  return placement(layout, MeshAxis::tensor, cluster, Together::all_stages);
}

namespace {

// The tensor group's ranks as three nested axes, of which the middle one is a group: `inner` ranks of other groups
// stand between its neighbours. They take the places of context and expert ranks in the mesh, which no layout has yet
// (common/capability/capability_rules.cpp).
Layout with_three_axes(const Layout& layout, int inner, int own) {
  Layout split = layout;
  split.tensor = {.degree = inner};
  split.context = own;
  split.expert = layout.tensor.degree / (inner * own);
  auto next = split.order.begin();
  for (const MeshAxis axis : layout.order) {
    if (axis == MeshAxis::context || axis == MeshAxis::expert) continue;
    *next++ = axis;
    if (axis != MeshAxis::tensor) continue;
    *next++ = MeshAxis::context;
    *next++ = MeshAxis::expert;
  }
  return split;
}

}  // namespace

TensorGroups tensor_groups(const Layout& layout, const Cluster& cluster) {
  const GroupPlacement all = tensor_placement(layout, cluster);
  if (!is_grid(layout.tensor)) return all;
  const TensorGrid grid = tensor_grid(layout.tensor);
  const std::array sizes{grid.column, grid.row, grid.depth};
  TensorGroups::ByAxes by_axes;
  for (std::size_t first = 0; first < sizes.size(); ++first) {
    int inner = 1;
    for (std::size_t axis = 0; axis < first; ++axis) inner *= sizes.at(axis);
    int own = 1;
    std::uint16_t bits = 0;
    for (std::size_t last = first; last < sizes.size(); ++last) {
      own *= sizes.at(last);
      bits = static_cast<std::uint16_t>(bits | 1U << last);
      by_axes.at(bits) =
          placement(with_three_axes(layout, inner, own), MeshAxis::context, cluster, Together::all_stages);
    }
  }
  return {all, by_axes};
}

}  // namespace plumb
