// Where a calibration measures, and what its profile says of that.
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "common/base/error.hpp"
#include "exec/calibrate/calibrate.hpp"
#include "exec/host/host.hpp"
#include "exec/host/host_identity.hpp"
#include "exec/transport/nccl/nccl.hpp"

namespace plumb::exec {
namespace {

std::string processor_text() {
  std::string processor = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      processor = line.substr(line.find(": ") + 2);
      break;
    }
  }
  return fmt::format("{}, {}, {} cores", host_name(), processor, std::thread::hardware_concurrency());
}

}  // namespace

Provenance provenance_of(const CalibrationOptions& options, const Host& host) {
  Provenance made{.machine = processor_text(), .versions = fmt::format("LibTorch {}", TORCH_VERSION)};
  if (options.device == "cpu") {
    made.machine += ", cpu";
    return made;
  }
  const std::optional<DeviceFacts> facts = host.device_facts(0);
  made.machine += ", " + (facts ? describe(*facts) : options.device);
  if (facts) made.versions += ", driver " + facts->driver;
  if (options.transport == "nccl") made.versions += ", NCCL " + require_nccl(host.nccl_library).version;
  return made;
}

void require_measurable(const CalibrationOptions& options) {
  require_kind_of_device(options.device);
  const std::vector<std::string> known =
      options.device == "cpu" ? std::vector<std::string>{"local", "gloo"} : std::vector<std::string>{"local", "nccl"};
  if (std::find(known.begin(), known.end(), options.transport) != known.end()) return;
  throw InputError("--transport", "cannot calibrate '" + options.transport + "' on " + options.device,
                   did_you_mean(options.transport, known));
}

std::vector<std::unique_ptr<Device>> devices_to_measure(const CalibrationOptions& options, const Host& host) {
  require_measurable(options);
  std::vector<std::unique_ptr<Device>> devices;
  if (options.device == "cpu") return devices;
  if (options.transport == "nccl") {
    (void)require_nccl(host.nccl_library);
    require_streams_for_nccl(host);
  }
  devices.push_back(host.make_device(0));  // says why there is none
  const int wanted = options.transport == "nccl" ? host.visible_devices() : 2;
  for (int rank = 1; rank < wanted; ++rank) devices.push_back(host.make_device(options.transport == "nccl" ? rank : 0));
  if (devices.size() > 1) return devices;
  throw InputError("--transport", "'nccl' is measured between two devices and more, and this process sees one",
                   "--transport local: ranks that share it");
}

}  // namespace plumb::exec
