// One machine: its devices, their memory and speed, and the links between them. Every number carries its provenance.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/units.hpp"

namespace plumb {

// Where a number comes from: "datasheet", "measured: …", "assumed: …".
template <class Value>
struct Sourced {
  Value value{};
  std::string source = {};
  bool operator==(const Sourced&) const = default;
};

enum class DeviceType : std::uint8_t { cpu, cuda };

struct DeviceProfile {
  std::string name = {};
  DeviceType type = DeviceType::cpu;
  Sourced<FlopsPerSecond> peak = {};       // of matmuls in the training precision
  Sourced<double> matmul_efficiency = {};  // fraction of the peak that matmuls reach in training
  Sourced<BytesPerSecond> memory_bandwidth = {};
  Sourced<double> memory_efficiency = {};  // fraction of the bandwidth that memory-bound kernels reach
  Sourced<Bytes> memory = {};              // what one rank may use
  bool operator==(const DeviceProfile&) const = default;
};

// A full-duplex port: a message of n bytes takes latency + n / bandwidth when it is alone.
struct Link {
  Sourced<Seconds> latency = {};
  Sourced<BytesPerSecond> bandwidth = {};
  bool operator==(const Link&) const = default;
};

struct Machine {
  std::string name = {};
  DeviceProfile device = {};
  int devices = 1;    // ranks that have a device of their own
  int cores = 0;      // of a CPU machine: ranks beyond it share cores; 0: every rank has its own device
  Link inside = {};   // port of each device to its peers in the machine
  Link outside = {};  // port of each device (its share of the NICs) to other machines
  bool operator==(const Machine&) const = default;
};

struct Cluster {
  Machine machine = {};
  int nodes = 1;
  int ranks = 1;  // on the nodes by `machine_of`
  bool operator==(const Cluster&) const = default;
};

// Ranks fill one machine after the other.
[[nodiscard]] constexpr int machine_of(int rank, int ranks_per_machine) { return rank / ranks_per_machine; }

// The cores that this process may use: its affinity, and no more than its control group's CPU quota.
[[nodiscard]] int usable_cores();

}  // namespace plumb
