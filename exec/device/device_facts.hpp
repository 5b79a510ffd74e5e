// What a GPU and its driver say of themselves: asked of the driver's own libraries, which are loaded when somebody
// asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plumb::exec {

struct DeviceFacts {
  std::string name = {};          // "NVIDIA H100 80GB HBM3"
  std::string bus = {};           // "0000:1b:00": domain, bus and device, as nvidia-smi writes them
  std::string driver = {};        // "570.86.15, CUDA 12.8"; the first part only where NVML is there
  std::int64_t memory_bytes = 0;  // all that it has; 0: unknown
  int processor_clock_mhz = 0;    // at this moment; 0: unknown
  int processor_clock_most = 0;   // that it can have
  int memory_clock_mhz = 0;
  bool operator==(const DeviceFacts&) const = default;
};

// "NVIDIA H100 80GB HBM3 at 0000:1b:00, processors at 1980 of 1980 MHz, memory at 2619 MHz".
[[nodiscard]] std::string describe(const DeviceFacts& facts);

struct DriverLibraries {
  std::string driver = "libcuda.so.1";
  std::string management = "libnvidia-ml.so.1";
};

// Of the device that is number `index` of those this process sees. Nothing: there is no driver, or no such device.
[[nodiscard]] std::optional<DeviceFacts> device_facts(int index, const DriverLibraries& libraries = {});

}  // namespace plumb::exec
