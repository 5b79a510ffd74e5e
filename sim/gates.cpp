#include "sim/gates.hpp"

#include <algorithm>
#include <set>

namespace plumb::sim {
namespace {

// Of a rank its lanes, its port and what it has of its NIC; what many share beyond these is disturbed for all.
std::set<PortId> disturbed_ports(const Disturbance& disturbance, const Paths& paths) {
  std::set<PortId> ports;
  const auto disturbs = [&](PortId port) {
    switch (disturbance.what) {
      case Disturbed::ports:
        return paths.is_of_rank(port) || paths.is_nic(port);
      case Disturbed::outside_ports:
        return paths.is_nic(port);
      case Disturbed::uplink:
        return paths.is_uplink(port);
      case Disturbed::leaf:
        return paths.is_leaf(port);
      default:
        return false;
    }
  };
  for (const Exit exit : exits) {
    for (const PortId port : paths.ports(disturbance.rank, exit)) {
      if (disturbs(port)) ports.insert(port);
    }
  }
  return ports;
}

}  // namespace

Gates gates_of(std::span<const Disturbance> disturbances, const Paths& paths) {
  std::map<Gated, std::vector<Disturbance>> by_gated;
  for (const Disturbance& disturbance : disturbances) {
    const int rank = disturbance.rank;
    if (disturbance.what == Disturbed::device) by_gated[{Disturbed::device, rank, 0}].push_back(disturbance);
    if (disturbance.what == Disturbed::way) {
      const auto [low, high] = std::minmax(rank, disturbance.peer);
      by_gated[{Disturbed::way, low, high}].push_back(disturbance);
    }
    const bool shared = disturbance.what == Disturbed::uplink || disturbance.what == Disturbed::leaf;
    for (const PortId port : disturbed_ports(disturbance, paths)) {
      const Gated gated = shared ? Gated{disturbance.what, 0, static_cast<int>(port)}
                                 : Gated{Disturbed::ports, rank, static_cast<int>(port)};
      by_gated[gated].push_back(disturbance);
    }
  }
  Gates gates;
  for (const auto& [gated, all] : by_gated) gates[gated].changes = speed_changes(all);
  return gates;
}

Gate* shared_gate(Gates& gates, PortId port) {
  for (const Disturbed what : {Disturbed::uplink, Disturbed::leaf}) {
    const auto found = gates.find({what, 0, static_cast<int>(port)});
    if (found != gates.end()) return &found->second;
  }
  return nullptr;
}

bool passes(const Gated& gated, int from, int to, const Path& path, const Paths& paths) {
  if (from == to) return gated.what == Disturbed::device && gated.rank == from;
  if (gated.what == Disturbed::device) return false;
  if (gated.what == Disturbed::way) return std::minmax(from, to) == std::minmax(gated.rank, gated.other);
  const auto port = static_cast<PortId>(gated.other);
  const auto uses = [&](ResourceId wanted) { return std::ranges::find(uses_of(path), wanted) != uses_of(path).end(); };
  if (gated.what != Disturbed::ports) return uses(paths.out_of(port)) || uses(paths.in_of(port));
  return (from == gated.rank && uses(paths.out_of(port))) || (to == gated.rank && uses(paths.in_of(port)));
}

}  // namespace plumb::sim
