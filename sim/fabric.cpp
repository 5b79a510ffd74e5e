#include "sim/fabric.hpp"

#include <cmath>

#include "common/cluster/machine.hpp"

namespace plumb::sim {
namespace {

// CM02 shares a port in inverse proportion to the latency of the routes. With 0.5 at each end every route counts 1, so
// that all share alike, and the latency factor is then a message's true latency in seconds.
constexpr double unit_latency = 0.5;

// Stands for an infinite bandwidth; messages through it carry no bytes.
constexpr double no_limit = 1e18;

double capacity_of(double bandwidth) { return std::isfinite(bandwidth) ? bandwidth * parts_of_byte : no_limit; }

}  // namespace

Fabric::Fabric(s4u::NetZone* zone, const Platform& platform, const Paths& paths, Gates& gates)
    : zone_(zone), platform_(platform), paths_(paths), gates_(gates) {
  build_devices();
  build_ports();
}

s4u::Host* Fabric::end_of(int rank, int peer, Exit exit) const {
  const auto path = path_ends_.find({rank, peer, exit});
  if (path != path_ends_.end()) return path->second;
  return hosts_.at(static_cast<std::size_t>(exit))[static_cast<std::size_t>(rank)];
}

// One for each change of the device.
std::vector<double> Fabric::speeds_of(int rank) const {
  const auto gate = gates_.find({Disturbed::device, rank, 0});
  if (gate == gates_.end()) return {1.0};
  std::vector<double> speeds;
  for (const SpeedChange& change : gate->second.changes) speeds.push_back(change.factor > 0 ? change.factor : 1);
  return speeds;
}

// Both directions. SimGrid 4.0 bounds a flow for life by its links' bandwidth at its start, so the bandwidth stays
// and what is shared of it changes.
s4u::Link* Fabric::make_gated(const std::string& name, double bandwidth, Gate& gate) {
  const auto share = [&gate](double capacity, int) { return capacity * gate.factor; };
  s4u::SplitDuplexLink* link = make_shared_duplex(zone_, name, capacity_of(bandwidth), share);
  gate.links.push_back(link->get_link_up());
  gate.links.push_back(link->get_link_down());
  return link;
}

void Fabric::build_devices() {
  s4u::Host* cores = nullptr;  // of the machine, if its ranks share them
  for (int rank = 0; rank < platform_.ranks; ++rank) {
    const int machine = machine_of(rank, platform_.ranks_per_machine);
    const bool shared = shares_cores(platform_, machine);
    if (shared && rank % platform_.ranks_per_machine == 0) {
      cores = make_host(zone_, "cores" + std::to_string(machine))->set_core_count(platform_.cores_per_machine)->seal();
    }
    hosts_[0].push_back(make_host(zone_, "rank" + std::to_string(rank), speeds_of(rank))->seal());
    if (const auto gate = gates_.find({Disturbed::device, rank, 0}); gate != gates_.end()) {
      gate->second.host = hosts_[0].back();
    }
    devices_.push_back(shared ? cores : hosts_[0].back());
  }
}

// A port of the platform is a link; a rank has a host for each of its exits, whose route leads through these.
void Fabric::build_ports() {
  for (PortId port = 0; port < paths_.port_count(); ++port) {
    if (Gate* gate = shared_gate(gates_, port)) {
      links_.push_back(make_gated("port" + std::to_string(port), paths_.capacity(port), *gate));
      continue;
    }
    links_.push_back(make_duplex(zone_, "port" + std::to_string(port), capacity_of(paths_.capacity(port)),
                                 paths_.carries_latency(port) ? unit_latency : 0));
  }
  for (auto& [gated, gate] : gates_) {
    if (gated.what != Disturbed::ports) continue;
    const auto port = static_cast<PortId>(gated.other);
    const std::string name = "rank" + std::to_string(gated.rank) + "at" + std::to_string(port);
    parts_of_ports_[{gated.rank, port}] = make_gated(name, paths_.capacity(port), gate);
  }
  for (const Exit exit : exits) {
    std::vector<s4u::Host*>& hosts = hosts_.at(static_cast<std::size_t>(exit));
    const bool own = exit != Exit::message;
    for (int rank = 0; rank < platform_.ranks; ++rank) {
      const std::vector<s4u::Link*> route = route_of(rank, exit);
      if (route.empty()) break;
      if (own) {
        hosts.push_back(
            make_host(zone_, "exit" + std::to_string(static_cast<int>(exit)) + "of" + std::to_string(rank))->seal());
      }
      connect(zone_, hosts[static_cast<std::size_t>(rank)], route);
    }
  }
  for (auto& [gated, gate] : gates_) {
    if (gated.what == Disturbed::way) build_path(gated, gate);
  }
}

std::vector<s4u::Link*> Fabric::route_of(int rank, Exit exit) const {
  std::vector<s4u::Link*> route;
  for (const PortId port : paths_.ports(rank, exit)) {
    route.push_back(links_[port]);
    if (const auto part = parts_of_ports_.find({rank, port}); part != parts_of_ports_.end()) {
      route.push_back(part->second);
    }
  }
  return route;
}

// Messages of a disturbed path leave by hosts of their own, through the same ports; the lower rank's has the gate.
void Fabric::build_path(const Gated& gated, Gate& gate) {
  for (const bool collective : {false, true}) {
    const Path path = paths_.between(gated.rank, gated.other, collective);
    if (path_ends_.contains({gated.rank, gated.other, path.exit})) continue;
    if (route_of(gated.rank, path.exit).empty()) continue;
    for (const auto& [rank, peer] : {std::pair{gated.rank, gated.other}, std::pair{gated.other, gated.rank}}) {
      const std::string name = "way" + std::to_string(static_cast<int>(path.exit)) + "of" + std::to_string(rank) +
                               "to" + std::to_string(peer);
      std::vector<s4u::Link*> route = route_of(rank, path.exit);
      if (rank == gated.rank) route.push_back(make_gated(name + "link", path.rate, gate));
      s4u::Host* end = make_host(zone_, name)->seal();
      connect(zone_, end, route);
      path_ends_[{rank, peer, path.exit}] = end;
    }
  }
}

}  // namespace plumb::sim
