// What disturbances slow or stop at dates: devices, ranks' parts of ports, shared uplinks, paths. Internal.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "sim/disturbances.hpp"
#include "sim/paths.hpp"
#include "sim/simgrid_versions.hpp"

namespace plumb::sim {

// What has a speed of its own: a device, what a rank has of a port (`other`), or the path to another rank (`other`).
struct Gated {
  Disturbed what = Disturbed::device;
  int rank = 0;
  int other = 0;
  auto operator<=>(const Gated&) const = default;
};

// What changes its speed at dates. Everything on it is fluid from the start.
struct Gate {
  std::vector<SpeedChange> changes = {};
  std::size_t next = 0;  // change
  simgrid::kernel::timer::Timer* timer = nullptr;
  double factor = 1;  // above zero: of what stands still that of before, since nothing is on it
  bool still = false;
  std::vector<s4u::Link*> links = {};
  s4u::Host* host = nullptr;
};

using Gates = std::map<Gated, Gate>;  // their addresses stay

[[nodiscard]] Gates gates_of(std::span<const Disturbance> disturbances, const Paths& paths);

// The gate of an uplink or a leaf's; none if nothing disturbs it.
[[nodiscard]] Gate* shared_gate(Gates& gates, PortId port);

// Whether a message over `path` goes through what has the gate; of a computation `from` and `to` are its rank.
[[nodiscard]] bool passes(const Gated& gated, int from, int to, const Path& path, const Paths& paths);

}  // namespace plumb::sim
