#include "common/layout/shared_ports.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
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

// Flows out of and into ports, in units of what one rank sends to the next; those of different stages apart unless all
// stages run together.
class Passes {
 public:
  explicit Passes(Together together) : together_(together) {}
  void add(int stage, int from, int to, double passes) {
    const int key = together_ == Together::all_stages ? 0 : stage;
    up_[{key, from}] += passes;
    down_[{key, to}] += passes;
  }
  [[nodiscard]] double most() const {
    double most = 0;
    for (const auto& [port, passes] : up_) most = std::max(most, passes);
    for (const auto& [port, passes] : down_) most = std::max(most, passes);
    return most;
  }

 private:
  Together together_;
  std::map<std::pair<int, int>, double> up_;  // by stage and port
  std::map<std::pair<int, int>, double> down_;
};

int stage_of(const Layout& layout, int rank) {
  return coordinates(layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline));
}

// Whether the groups of this stage are meant: without data degrees by stage those of all are.
bool is_meant(const Layout& layout, int of_rank, int meant) { return !has_stage_data(layout) || of_rank == meant; }

// Over the uplinks of each switch: of the first machine, or with data degrees by stage of all that the stage is on.
double busiest_uplink(const Layout& layout, MeshAxis axis, const Machine& machine, Together together, int meant) {
  Passes passes(together);
  const int all = has_stage_data(layout) ? ranks(layout) : std::min(machine.devices, ranks(layout));
  for (int rank = 0; rank < all; ++rank) {
    const int stage = stage_of(layout, rank);
    if (!is_meant(layout, stage, meant)) continue;
    const std::vector<int> members = group(layout, rank, axis);
    std::vector<int> here;
    std::ranges::copy_if(members, std::back_inserter(here), [&](int member) {
      return machine_of(member, machine.devices) == machine_of(rank, machine.devices);
    });
    const auto at = std::ranges::find(here, rank) - here.begin();
    const int next = here[static_cast<std::size_t>(at + 1) % here.size()];
    const int own = rank / machine.devices_per_switch;
    const int other = next / machine.devices_per_switch;
    if (own != other) passes.add(stage, own, other, 1);
    if (here.size() == members.size()) continue;
    passes.add(stage, own, own, 1 / static_cast<double>(here.size()));
  }
  return passes.most();
}

// Neighbours on the axis stand so many ranks apart.
int stride_of(const Layout& layout, MeshAxis axis) {
  int stride = 1;
  for (const MeshAxis inner : layout.order) {
    if (inner == axis) break;
    stride *= degree(layout, inner);
  }
  return stride;
}

// The ranks of one stage, in runs of neighbours: one, or where pipeline is not the outermost axis one for each step of
// those outside it. Calls `visit(begin, end)`.
template <class Visit>
void for_each_run(const Layout& layout, int stage, const Visit& visit) {
  if (has_stage_data(layout)) {
    visit(first_rank(layout, stage), first_rank(layout, stage) + stage_width(layout, stage));
    return;
  }
  const int width = pipeline_stride(layout);
  const int all = ranks(layout);
  for (int begin = stage * width; begin < all; begin += width * layout.pipeline) visit(begin, begin + width);
}

// Over the borders between ports of so many neighbouring devices: in a ring the ranks that a group has on a machine
// send, together, once what one rank sends to the next, to the group's next machine. Of neighbouring groups whose
// members have the same ports one is looked at.
double busiest_border(const Layout& layout, MeshAxis axis, int port_devices, Together together, int meant) {
  const bool by_stage = has_stage_data(layout);
  const Layout here = as_all(layout, meant);
  const int stride = stride_of(here, axis);
  const int size = degree(here, axis);
  if (!by_stage && port_devices % (std::int64_t{stride} * size) == 0) return 0;  // no group crosses a border
  const int alike =
      std::gcd(std::gcd(stride, port_devices), by_stage ? first_rank(layout, meant) : pipeline_stride(layout));
  std::vector<int> up(static_cast<std::size_t>((ranks(layout) - 1) / port_devices + 1));
  std::vector<int> down(up.size());
  int most = 0;
  const auto add_group = [&](std::int64_t first) {
    const std::int64_t last = first + std::int64_t{size - 1} * stride;
    std::int64_t port = first / port_devices;
    for (std::int64_t rank = first; rank <= last;) {
      rank += ((port + 1) * port_devices - rank + stride - 1) / stride * stride;  // the first member behind the border
      const std::int64_t next = (rank <= last ? rank : first) / port_devices;
      if (next != port) {
        int& out = up[static_cast<std::size_t>(port)];
        int& in = down[static_cast<std::size_t>(next)];
        out += alike;
        in += alike;
        most = std::max({most, out, in});
      }
      port = next;
    }
  };
  for (int stage = by_stage ? meant : 0; stage < (by_stage ? meant + 1 : layout.pipeline); ++stage) {
    for_each_run(layout, stage, [&](int begin, int end) {
      const int origin = by_stage ? begin : 0;
      for (int rank = begin; rank < end; rank += alike) {
        if ((rank - origin) / stride % size == 0) add_group(rank);
      }
    });
    if (together == Together::all_stages) continue;
    std::ranges::fill(up, 0);
    std::ranges::fill(down, 0);
  }
  return most;
}

// Of the ranks first, first + stride, …, last: the fewest on one of the machines that they are on. A machine is wider
// than the stride, so that none between the first and the last is left out, and counts of those between them repeat.
int fewest_of_group(std::int64_t first, std::int64_t last, int stride, int devices) {
  const auto count = [&](std::int64_t machine) {
    const std::int64_t begin = std::max(first, machine * devices);
    const std::int64_t end = std::min(last, (machine + 1) * devices - 1);
    return (end - first) / stride - (begin - first + stride - 1) / stride + 1;
  };
  const std::int64_t last_machine = last / devices;
  std::int64_t fewest = count(last_machine);
  const std::int64_t repeated = first / devices + stride / std::gcd(stride, devices);
  for (std::int64_t machine = first / devices; machine < std::min(last_machine, repeated + 1); ++machine) {
    fewest = std::min(fewest, count(machine));
  }
  return static_cast<int>(fewest);
}

}  // namespace

int fewest_on_a_machine(const Layout& layout, MeshAxis axis, int devices) {
  const int size = degree(layout, axis);
  const int stride = stride_of(layout, axis);
  const int span = stride * size;  // of the ranks among which a group is; its own stand `stride` apart
  if (devices % span == 0) return size;
  if (stride >= devices) return 1;
  if (span % devices == 0 && devices % stride == 0) return devices / stride;
  const auto period = std::lcm(std::int64_t{devices}, std::int64_t{span});
  int fewest = size;
  for (std::int64_t begin = 0; begin < std::min<std::int64_t>(period, ranks(layout)); begin += span) {
    for (std::int64_t first = begin; first < begin + stride; ++first) {
      fewest = std::min(fewest, fewest_of_group(first, first + span - stride, stride, devices));
    }
  }
  return fewest;
}

GroupLinks group_links(const Layout& layout, MeshAxis axis, const Cluster& cluster, Together together, int stage) {
  const Machine& machine = cluster.machine;
  GroupLinks links;
  if (degree(as_all(layout, stage), axis) <= 1) return links;
  const int per_nic = devices_per_nic(machine);
  const bool all = together == Together::all_stages;
  if (has_stage_data(layout)) {
    links.ranks_per_nic = stage_ranks_per_port(layout, stage, per_nic);
  } else {
    links.ranks_per_nic = all ? std::min(per_nic, ranks(layout)) : port_sharing(layout, per_nic).together;
  }
  if (machine.devices_per_switch > 0) links.uplink_passes = busiest_uplink(layout, axis, machine, together, stage);
  const auto border = [&](int nodes) {
    return nodes > 0 ? busiest_border(layout, axis, nodes * machine.devices, together, stage) : 0.0;
  };
  links.leaf_passes = border(cluster.nodes_per_leaf);
  links.site_passes = border(cluster.nodes_per_site);
  return links;
}

}  // namespace plumb
