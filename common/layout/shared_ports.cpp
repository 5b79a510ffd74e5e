#include "common/layout/shared_ports.hpp"

#include <algorithm>
#include <array>
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

int stage_ranks_on_machine(const Layout& layout, const Machine& machine) {
  return port_sharing(layout, machine.devices).together;
}

double core_slowdown(const Layout& layout, const Machine& machine) {
  if (machine.cores == 0) return 1;
  return std::max(1.0, static_cast<double>(stage_ranks_on_machine(layout, machine)) / machine.cores);
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

// Groups of an axis lie side by side in blocks of stride · size ranks: the ranks r of one have the same r mod stride.
// Of a block the neighbours [begin, end) that one port has.
struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Of the blocks of so many ranks from `first` on those that the neighbours [begin, end) have a part of, and not all: at
// most one at each end, else empty.
std::array<Part, 2> cut_blocks(std::int64_t first, std::int64_t block, std::int64_t begin, std::int64_t end) {
  const std::int64_t behind = begin - (begin - first) % block + block;  // where the block of `begin` ends
  if (end < behind || (end == behind && end - begin < block)) return {Part{begin, end}};
  const std::int64_t rest = (end - first) % block;
  return {Part{begin, behind - begin < block ? behind : begin}, Part{end - rest, end}};
}

// Groups of one stage, or of all, that a port has some members of and not all: in a ring each sends once from there to
// the next port, and gets as much.
class CutGroups {
 public:
  CutGroups(const Layout& layout, std::int64_t stride, int size)
      : width_(pipeline_stride(layout)), cycle_(width_ * layout.pipeline), stride_(stride), size_(size) {}

  [[nodiscard]] std::int64_t of_all(Part part) const {
    return here(part).end - part.begin - (inside(part).end - part.begin);
  }
  // Where every step of the axis passes all stages.
  [[nodiscard]] std::int64_t of_stage(Part part, int stage) const {
    return ranks_of(stage, here(part)) - ranks_of(stage, inside(part));
  }

 private:
  // A rank of each group that has one in the part; and the first ranks of those that have all of theirs there.
  [[nodiscard]] Part here(Part part) const { return {part.begin, std::min(part.end, part.begin + stride_)}; }
  [[nodiscard]] Part inside(Part part) const {
    return {part.begin, std::max(part.begin, part.end - (size_ - 1) * stride_)};
  }
  [[nodiscard]] std::int64_t ranks_of(int stage, Part part) const {
    const auto before = [&](std::int64_t rank) {
      const std::int64_t begin = std::int64_t{stage} * width_;
      return rank / cycle_ * width_ + std::clamp<std::int64_t>(rank % cycle_ - begin, 0, width_);
    };
    return before(part.end) - before(part.begin);
  }

  std::int64_t width_;
  std::int64_t cycle_;  // ranks after which the stages begin anew
  std::int64_t stride_;
  std::int64_t size_;
};

// Over the borders between ports of so many neighbouring devices: in a ring the ranks that a group has on a machine
// send, together, once what one rank sends to the next, to the group's next machine. What a port has depends on where
// the blocks of groups and the stages begin in it: ports whose number differs by a common multiple have the same.
double busiest_border(const Layout& layout, MeshAxis axis, std::int64_t port, Together together, int meant) {
  const bool by_stage = has_stage_data(layout);
  const Layout own = as_all(layout, meant);
  const std::int64_t stride = stride_of(own, axis);
  const int size = degree(own, axis);
  const std::int64_t block = stride * size;
  const std::int64_t first = by_stage ? first_rank(layout, meant) : 0;
  const std::int64_t end = by_stage ? first + stage_width(layout, meant) : ranks(layout);
  const std::int64_t width = pipeline_stride(layout);
  const std::int64_t cycle = width * layout.pipeline;
  const bool apart = !by_stage && together == Together::one_stage && layout.pipeline > 1;
  const bool passes_stages = apart && stride % cycle == 0;
  const std::int64_t repeated = std::lcm(apart ? std::max(block, cycle) : block, port) / port;
  const CutGroups cut(layout, stride, size);
  // Of ports within one block that differ in where the stages begin, one of each.
  std::vector<char> seen(static_cast<std::size_t>(cycle / std::gcd(cycle, port)));
  std::int64_t most = 0;
  for (std::int64_t number = first / port; number <= std::min((end - 1) / port, first / port + repeated); ++number) {
    const std::int64_t begin = std::max(first, number * port);
    const std::array<Part, 2> parts = cut_blocks(first, block, begin, std::min(end, (number + 1) * port));
    if (passes_stages) {
      const bool within = parts.front().end - parts.front().begin == port;
      if (within && std::exchange(seen[static_cast<std::size_t>(number) % seen.size()], 1) != 0) continue;
      for (int stage = 0; stage < layout.pipeline; ++stage) {
        std::int64_t sum = 0;
        for (const Part& part : parts) sum += cut.of_stage(part, stage);
        most = std::max(most, sum);
      }
      continue;
    }
    std::int64_t sum = 0;
    for (const Part& part : parts) {
      const bool other = apart && part.begin / width % layout.pipeline != parts.front().begin / width % layout.pipeline;
      sum = cut.of_all(part) + (other ? 0 : sum);
      most = std::max(most, sum);
    }
  }
  return static_cast<double>(most);
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
    return nodes > 0 ? busiest_border(layout, axis, std::int64_t{nodes} * machine.devices, together, stage) : 0.0;
  };
  links.leaf_passes = border(cluster.nodes_per_leaf);
  links.site_passes = border(cluster.nodes_per_site);
  return links;
}

}  // namespace plumb
