// One machine: its devices, their memory and speed, and the links between them. Every number carries its provenance.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/units.hpp"

namespace plumb {

// Where a number comes from: "datasheet", "measured: …", "assumed: …", and how sure it is.
template <class Value>
struct Sourced {
  Value value{};
  std::string source = {};
  double uncertainty = 0;  // one standard deviation, as a fraction of the value; 0: taken as exact
  bool operator==(const Sourced&) const = default;
};

enum class DeviceType : std::uint8_t { cpu, cuda };

struct DeviceProfile {
  std::string name = {};
  DeviceType type = DeviceType::cpu;
  Sourced<FlopsPerSecond> peak = {};       // of matmuls in the training precision
  Sourced<double> matmul_efficiency = {};  // fraction of the peak that large matmuls sustain in training
  Sourced<double> matmul_depth = {};       // k0: what a tile loses at its start, in elements of the summed dimension
  int multiprocessors = 0;                 // over which the tiles of a matmul go in waves (datasheet); 0: no waves
  Sourced<BytesPerSecond> memory_bandwidth = {};
  Sourced<double> memory_efficiency = {};        // fraction of the bandwidth that memory-bound kernels reach
  Sourced<double> attention_efficiency = {};     // fraction of the peak that fused attention and recurrences reach
  Sourced<Seconds> kernel_gap = {};              // between two kernels of a stream
  Sourced<Seconds> launch_time = {};             // of the host, for one kernel
  Sourced<double> message_multiprocessors = {};  // that messages take from matmuls while they run beside them
  Sourced<Bytes> memory = {};                    // what one rank may use: the device's without …
  Sourced<Bytes> framework_memory = {};          // … contexts, communication libraries and fragmentation
  bool operator==(const DeviceProfile&) const = default;
};

// A full-duplex port: a message of n bytes takes latency + n / bandwidth when it is alone.
struct Link {
  Sourced<Seconds> latency = {};
  Sourced<BytesPerSecond> bandwidth = {};
  bool operator==(const Link&) const = default;
};

// The part of the host beside a device, where its rank keeps and updates what it offloads. Without a memory there is
// none.
struct HostProfile {
  Link link = {};            // port of a device to its host (PCIe, NVLink-C2C), each way
  int devices_per_link = 1;  // neighbours that share one such port
  // Of each device: what its rank may use there, and what an optimizer that streams states through the host's memory
  // reaches while those of all other devices do so too.
  Sourced<Bytes> memory = {};
  Sourced<BytesPerSecond> memory_bandwidth = {};
  bool operator==(const HostProfile&) const = default;
};

struct Machine {
  std::string name = {};
  DeviceProfile device = {};
  int devices = 1;   // ranks that have a device of their own
  int cores = 0;     // of a CPU machine: ranks beyond it share cores; 0: every rank has its own device
  Link inside = {};  // port of each device to its peers in the machine
  // To other machines: port of each device, or of each of the NICs that the devices share.
  Link outside = {};
  int nics = 0;  // that the devices share evenly, neighbours together; 0: each device has a port of its own
  // A PCIe tree: so many neighbouring devices under one switch, whose uplink all messages to devices of other switches
  // and to other machines share; 0: no switches, every two devices reach each other at full speed.
  int devices_per_switch = 0;
  Sourced<BytesPerSecond> uplink = {};                // of one switch, each way
  Sourced<BytesPerSecond> collective_bandwidth = {};  // of rings inside, the bus bandwidth of NCCL's tests
  // Of an all-reduce over n ranks before its first byte: collective_latency + n · collective_latency_per_rank.
  Sourced<Seconds> collective_latency = {};
  Sourced<Seconds> collective_latency_per_rank = {};
  // Of an all-reduce by the switch itself over all devices (NVLink SHARP), as a bus bandwidth; 0: the switch cannot.
  Sourced<BytesPerSecond> switch_bandwidth = {};
  HostProfile host = {};
  bool operator==(const Machine&) const = default;
};

[[nodiscard]] inline bool has_host(const Machine& machine) { return machine.host.memory.value > Bytes{}; }

struct Cluster {
  Machine machine = {};
  int nodes = 1;
  int ranks = 1;  // on the nodes by `machine_of`
  // A fat tree: so many neighbouring nodes under one leaf, whose uplinks together have the bandwidth of the nodes' NICs
  // divided by `oversubscription`; 0: any two nodes reach each other at full speed.
  int nodes_per_leaf = 0;
  double oversubscription = 1;
  // Sites of so many neighbouring nodes, each with one link to the others, whose latency comes on top; 0: one site.
  int nodes_per_site = 0;
  Link between_sites = {};
  bool operator==(const Cluster&) const = default;
};

// Of all uplinks of one leaf together, each way.
[[nodiscard]] inline BytesPerSecond leaf_bandwidth(const Cluster& cluster) {
  const int ports = cluster.machine.nics > 0 ? cluster.machine.nics : cluster.machine.devices;
  return cluster.machine.outside.bandwidth.value * (ports * cluster.nodes_per_leaf / cluster.oversubscription);
}

// Ranks fill one machine after the other.
[[nodiscard]] constexpr int machine_of(int rank, int ranks_per_machine) { return rank / ranks_per_machine; }

// The cores that this process may use: its affinity, and no more than its control group's CPU quota.
[[nodiscard]] int usable_cores();

}  // namespace plumb
