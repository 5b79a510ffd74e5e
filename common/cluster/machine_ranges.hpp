// What counts and ratios of machines and clusters may be, in whatever file they stand; for the other numbers range_of
// in machine_numbers.hpp.
#pragma once

#include "common/cluster/machine.hpp"

namespace plumb {

inline constexpr double most_uncertainty = 10;  // times the value
inline constexpr double most_oversubscription = 1000;

inline constexpr int most_multiprocessors = 4096;
inline constexpr int most_devices = 1024;  // but where they are the cores
inline constexpr int most_cores = 65'536;
inline constexpr int most_nodes = 100'000;
inline constexpr int most_cluster_ranks = 1 << 20;

// What neighbouring devices share, they share evenly.
[[nodiscard]] constexpr bool shares_evenly(const Machine& machine, int parts) {
  return parts == 0 || machine.devices % parts == 0;
}

// Messages leave matmuls some of the multiprocessors, where their number is known.
[[nodiscard]] inline bool leaves_multiprocessors(const DeviceProfile& device) {
  return device.multiprocessors == 0 || device.message_multiprocessors.value < device.multiprocessors;
}

}  // namespace plumb
