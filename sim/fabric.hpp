// A platform's devices, ports and paths as hosts and links of SimGrid. Internal.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/gates.hpp"
#include "sim/paths.hpp"
#include "sim/platform.hpp"
#include "sim/simgrid_versions.hpp"

namespace plumb::sim {

// SimGrid sends whole units, and what is left of a message is no whole number of bytes.
inline constexpr double parts_of_byte = 1024;

class Fabric {
 public:
  // Builds everything into `zone`. Gates get the hosts and links whose speed they change.
  Fabric(s4u::NetZone* zone, const Platform& platform, const Paths& paths, Gates& gates);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // Where a rank computes: a host of its own, or its machine's cores.
  [[nodiscard]] s4u::Host* device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }
  // Where a message between a rank and its peer begins, or ends, at the rank.
  [[nodiscard]] s4u::Host* end_of(int rank, int peer, Exit exit) const;

 private:
  void build_devices();
  [[nodiscard]] std::vector<double> speeds_of(int rank) const;
  void build_ports();
  void build_path(const Gated& gated, Gate& gate);
  [[nodiscard]] std::vector<s4u::Link*> route_of(int rank, Exit exit) const;
  s4u::Link* make_gated(const std::string& name, double bandwidth, Gate& gate);

  s4u::NetZone* zone_;
  const Platform& platform_;
  const Paths& paths_;
  Gates& gates_;
  std::vector<s4u::Host*> devices_;
  std::array<std::vector<s4u::Host*>, exits.size()> hosts_;  // by exit, then rank
  std::vector<s4u::Link*> links_;                            // by port
  std::map<std::pair<int, PortId>, s4u::Link*> parts_of_ports_;
  std::map<std::tuple<int, int, Exit>, s4u::Host*> path_ends_;  // by rank and peer
};

}  // namespace plumb::sim
