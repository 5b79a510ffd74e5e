#include "common/cost/links/stage_links.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>

#include "common/layout/message_shares.hpp"
#include "common/layout/shared_ports.hpp"

namespace plumb {
namespace {

enum class Port : std::uint8_t { lane, device, nic, uplink, leaf, site };

// Adds up what goes through each port, each way.
class PortLoads {
 public:
  explicit PortLoads(const Cluster& cluster) : cluster_(cluster), machine_(cluster.machine) {}

  // `bytes` from one rank to another.
  void add(int from, int to, double bytes) {
    const bool outside = apart(from, to, machine_.devices);
    const bool across = !outside && machine_.devices_per_switch > 0 && apart(from, to, machine_.devices_per_switch);
    Seconds latency = outside ? machine_.outside.latency.value : machine_.inside.latency.value;
    for (const bool out : {true, false}) {
      const int rank = out ? from : to;
      const auto load = [&](Port port, int index, BytesPerSecond bandwidth) {
        loads_[{port, index, out}] += bytes / bandwidth.value;
      };
      if (!outside) load(Port::lane, rank, machine_.inside.bandwidth.value);
      if (outside) load(Port::nic, nic_of(rank), machine_.outside.bandwidth.value);
      if (outside && machine_.devices_per_switch > 0) {
        load(Port::device, rank, std::max(machine_.inside.bandwidth.value, machine_.collective_bandwidth.value));
      }
      if (across || (outside && machine_.devices_per_switch > 0)) {
        load(Port::uplink, switch_of(rank), machine_.uplink.value);
      }
      const int leaf = cluster_.nodes_per_leaf * machine_.devices;
      if (outside && leaf > 0 && apart(from, to, leaf)) load(Port::leaf, rank / leaf, leaf_bandwidth(cluster_));
      const int site = cluster_.nodes_per_site * machine_.devices;
      if (outside && site > 0 && apart(from, to, site)) {
        load(Port::site, rank / site, cluster_.between_sites.bandwidth.value);
        if (out) latency += cluster_.between_sites.latency.value;
      }
    }
    latency_ = std::max(latency_, latency);
  }

  [[nodiscard]] Seconds latency() const { return latency_; }
  [[nodiscard]] double busiest_s() const {
    double most = 0;
    for (const auto& [port, seconds] : loads_) most = std::max(most, seconds);
    return most;
  }

 private:
  [[nodiscard]] static bool apart(int from, int to, int each) { return from / each != to / each; }
  [[nodiscard]] int nic_of(int rank) const {
    const int shared_by = devices_per_nic(machine_);
    const int per_machine = (machine_.devices + shared_by - 1) / shared_by;
    return machine_of(rank, machine_.devices) * per_machine + rank % machine_.devices / shared_by;
  }
  [[nodiscard]] int switch_of(int rank) const { return rank / machine_.devices_per_switch; }

  const Cluster& cluster_;
  const Machine& machine_;
  std::map<std::tuple<Port, int, bool>, double> loads_;  // seconds, by port, its index, and way
  Seconds latency_ = {};
};

}  // namespace

BoundaryCost boundary_between(const Layout& layout, const Cluster& cluster, int from_stage, int to_stage, Bytes before,
                              Bytes behind) {
  BoundaryCost boundary{.before = before, .behind = behind, .way = {}};
  boundary.way.bandwidth = {std::numeric_limits<double>::infinity()};
  if (from_stage == to_stage) return boundary;  // two stages of one rank
  PortLoads loads(cluster);
  const double whole = static_cast<double>(before.value) * data_degree(layout, from_stage);
  for (const MessageShare& share : message_shares(layout, from_stage, to_stage)) {
    loads.add(share.from, share.to, share.fraction * whole);
  }
  boundary.way.latency = loads.latency();
  if (loads.busiest_s() > 0) {
    boundary.way.bandwidth = {static_cast<double>(std::max(before, behind).value) / loads.busiest_s()};
  }
  return boundary;
}

}  // namespace plumb
