#include "common/cost/links/pipeline_links.hpp"

#include <algorithm>

#include "common/layout/shared_ports.hpp"

namespace plumb {

void set_links(PipelineCosts& costs, const Layout& layout, const Cluster& cluster, Seconds gathering) {
  const Machine& machine = cluster.machine;
  costs.inside = {.latency = machine.inside.latency.value + gathering, .bandwidth = machine.inside.bandwidth.value};
  costs.outside = {.latency = machine.outside.latency.value + gathering, .bandwidth = machine.outside.bandwidth.value};
  if (has_stage_data(layout)) {  // boundaries have ways of their own
    costs.across = {.latency = costs.inside.latency, .bandwidth = costs.inside.bandwidth};
    if (machine.devices_per_switch > 0) {
      costs.across.bandwidth = std::min(costs.inside.bandwidth, BytesPerSecond{machine.uplink.value});
    }
    return;
  }
  if (machine.nics > 0) {
    const PortSharing nic = port_sharing(layout, devices_per_nic(machine));
    costs.outside.bandwidth = machine.outside.bandwidth.value / nic.together;
    costs.shared.ranks_per_nic = nic.stages;
    costs.shared.nic = costs.outside.bandwidth;
  }
  if (cluster.nodes_per_leaf > 0) {
    const PortSharing leaf = port_sharing(layout, cluster.nodes_per_leaf * machine.devices);
    costs.shared.ranks_per_leaf = leaf.stages;
    costs.shared.leaf = leaf_bandwidth(cluster) / static_cast<double>(leaf.together);
  }
  if (cluster.nodes_per_site > 0) {
    const PortSharing site = port_sharing(layout, cluster.nodes_per_site * machine.devices);
    costs.shared.ranks_per_site = site.stages;
    costs.shared.site = cluster.between_sites.bandwidth.value / static_cast<double>(site.together);
    costs.shared.site_latency = cluster.between_sites.latency.value;
  }
  if (machine.devices_per_switch == 0) return;
  const PortSharing uplink = port_sharing(layout, machine.devices_per_switch);
  costs.shared.ranks_per_switch = uplink.stages;
  costs.shared.uplink = machine.uplink.value / uplink.together;
  const BytesPerSecond most = std::min(costs.inside.bandwidth, costs.shared.uplink);
  costs.across = {.latency = costs.inside.latency, .bandwidth = most};
  if (costs.shared.nic.value == 0) costs.shared.nic = costs.outside.bandwidth;
  costs.outside.bandwidth = std::min(costs.outside.bandwidth, most);
}

}  // namespace plumb
