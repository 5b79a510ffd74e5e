// Through which ports of a platform each message goes, and how fast it is there when it is alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/platform.hpp"

namespace plumb::sim {

// What activities contend for: the devices (by rank), then of each port its way out and its way in.
using ResourceId = std::uint32_t;
using PortId = std::uint32_t;

// Where a message leaves its rank, and arrives: both ends of one message are alike.
enum class Exit : std::uint8_t {
  message,         // under the same switch
  message_across,  // through the switches' uplinks
  ring,            // of a collective
  ring_across,
  outside,       // to another machine
  outside_leaf,  // under another leaf
  outside_site,  // under another leaf of another site
};
inline constexpr std::array exits{Exit::message, Exit::message_across, Exit::ring,        Exit::ring_across,
                                  Exit::outside, Exit::outside_leaf,   Exit::outside_site};

struct Path {
  Exit exit = Exit::message;
  std::uint8_t count = 0;
  std::array<ResourceId, 10> uses = {};  // `count` of them
  double rate = 0;                       // bytes per second when nothing else is on its way; may be infinite
};

[[nodiscard]] inline std::span<const ResourceId> uses_of(const Path& path) { return {path.uses.data(), path.count}; }

// A rank's own lanes for messages and for collectives lead into its port, as NVLink has more bandwidth than one channel
// of messages gets. Behind a PCIe switch the port also leads outside; else the NIC stands beside it.
class Paths {
 public:
  explicit Paths(const Platform& platform);

  [[nodiscard]] Path between(int from, int to, bool collective) const;

  // The ports at one end, from the rank outwards: the first of them carries the latency. None: nothing leaves that way.
  [[nodiscard]] std::vector<PortId> ports(int rank, Exit exit) const;

  [[nodiscard]] std::size_t port_count() const { return capacities_.size(); }
  [[nodiscard]] double capacity(PortId port) const { return capacities_[port]; }  // each way; may be infinite
  [[nodiscard]] bool carries_latency(PortId port) const;
  [[nodiscard]] bool is_of_rank(PortId port) const { return port < first_nic_; }  // of one alone
  [[nodiscard]] bool is_nic(PortId port) const { return port >= first_nic_ && port < first_switch_; }
  [[nodiscard]] bool is_uplink(PortId port) const { return port >= first_switch_ && port < first_leaf_; }
  [[nodiscard]] bool is_leaf(PortId port) const { return port >= first_leaf_ && port < first_site_; }
  [[nodiscard]] std::size_t resource_count() const { return static_cast<std::size_t>(ranks_) + 2 * port_count(); }
  [[nodiscard]] static ResourceId device(int rank) { return static_cast<ResourceId>(rank); }
  [[nodiscard]] ResourceId out_of(PortId port) const { return static_cast<ResourceId>(ranks_) + 2 * port; }
  [[nodiscard]] ResourceId in_of(PortId port) const { return out_of(port) + 1; }

 private:
  // At most five ports at an end.
  struct End {
    std::array<PortId, 5> ports = {};
    std::uint8_t count = 0;
  };
  [[nodiscard]] End end(int rank, Exit exit) const;
  [[nodiscard]] int within(int rank, int shared_by, int per_machine) const;

  Platform platform_;
  int ranks_;
  int nics_per_machine_;
  int switches_per_machine_ = 0;
  bool has_ports_;  // apart from the lanes
  PortId first_ring_ = 0;
  PortId first_port_ = 0;
  PortId first_nic_ = 0;
  PortId first_switch_ = 0;
  PortId first_leaf_ = 0;
  PortId first_site_ = 0;
  std::vector<double> capacities_;
};

}  // namespace plumb::sim
