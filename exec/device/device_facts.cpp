#include "exec/device/device_facts.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace plumb::exec {
namespace {

// Both interfaces are C with plain numbers, and stable: declared here, so that neither header is needed to build.
constexpr int success = 0;             // CUDA_SUCCESS, NVML_SUCCESS
constexpr unsigned nvml_clock_sm = 1;  // NVML_CLOCK_SM
constexpr unsigned nvml_clock_memory = 2;
using NvmlDevice = void*;

// A library that stays loaded: drivers start threads of their own.
class Library {
 public:
  explicit Library(const std::string& file) : handle_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {}

  // What the function returns; anything but `success` where the library or the function is missing.
  template <class... Parameters>
  int call(const char* name, Parameters... parameters) const {
    constexpr int missing = -1;
    if (handle_ == nullptr) return missing;
    auto* const function = reinterpret_cast<int (*)(Parameters...)>(::dlsym(handle_, name));
    return function == nullptr ? missing : function(parameters...);
  }

 private:
  void* handle_;
};

std::string text_of(const std::array<char, 96>& text) { return {text.data()}; }

int clock_of(const Library& management, const char* name, NvmlDevice device, unsigned kind) {
  unsigned mhz = 0;
  return management.call(name, device, kind, &mhz) == success ? static_cast<int>(mhz) : 0;
}

void ask_management(const Library& management, const std::string& bus, DeviceFacts& facts) {
  if (management.call("nvmlInit_v2") != success) return;
  std::array<char, 96> version{};
  if (management.call("nvmlSystemGetDriverVersion", version.data(), static_cast<unsigned>(version.size())) == success) {
    facts.driver = text_of(version) + ", " + facts.driver;
  }
  NvmlDevice device = nullptr;
  if (management.call("nvmlDeviceGetHandleByPciBusId_v2", bus.c_str(), &device) != success) return;
  facts.processor_clock_mhz = clock_of(management, "nvmlDeviceGetClockInfo", device, nvml_clock_sm);
  facts.processor_clock_most = clock_of(management, "nvmlDeviceGetMaxClockInfo", device, nvml_clock_sm);
  facts.memory_clock_mhz = clock_of(management, "nvmlDeviceGetClockInfo", device, nvml_clock_memory);
}

}  // namespace

std::string describe(const DeviceFacts& facts) {
  std::string text = facts.name;
  if (!facts.bus.empty()) text += " at " + facts.bus;
  if (facts.processor_clock_mhz > 0) {
    text += fmt::format(", processors at {} of {} MHz", facts.processor_clock_mhz, facts.processor_clock_most);
  }
  if (facts.memory_clock_mhz > 0) text += fmt::format(", memory at {} MHz", facts.memory_clock_mhz);
  return text;
}

std::optional<DeviceFacts> device_facts(int index, const DriverLibraries& libraries) {
  const Library driver(libraries.driver);
  int device = 0;
  if (driver.call("cuInit", 0U) != success || driver.call("cuDeviceGet", &device, index) != success) {
    return std::nullopt;
  }
  DeviceFacts facts;
  std::array<char, 96> text{};
  const int room = static_cast<int>(text.size());
  if (driver.call("cuDeviceGetName", text.data(), room, device) == success) facts.name = text_of(text);
  std::string bus;
  if (driver.call("cuDeviceGetPCIBusId", text.data(), room, device) == success) bus = text_of(text);
  facts.bus = bus.substr(0, bus.rfind('.'));  // the function behind the point is always 0
  int version = 0;
  if (driver.call("cuDriverGetVersion", &version) == success) {
    facts.driver = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  }
  std::size_t bytes = 0;
  if (driver.call("cuDeviceTotalMem_v2", &bytes, device) == success) {
    facts.memory_bytes = static_cast<std::int64_t>(bytes);
  }
  ask_management(Library(libraries.management), bus, facts);
  return facts;
}

}  // namespace plumb::exec
