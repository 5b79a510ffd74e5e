// Measures this machine: F, I, W, optimizer and memory of every distinct block, and the transport.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/stop.hpp"
#include "common/cost/profile/profile.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb::exec {

class Device;  // exec/device/device.hpp
struct Host;   // exec/host/host.hpp

struct CalibrationOptions {
  int rounds = 15;  // each round measures every distinct block once, in alternation
  std::string transport = "local";
  std::string device = "cpu";                   // or "cuda"
  std::vector<std::size_t> message_bytes = {};  // that a device copies, adds and sends; none: those of RateOptions
  std::function<void(int done, int total)> progress = {};
  Stop stop = {};  // looked at in every round
};

// What a profile says of where it was measured.
struct Provenance {
  std::string machine;   // host, processor, device with its clocks
  std::string versions;  // LibTorch, driver, NCCL
};
[[nodiscard]] Provenance provenance_of(const CalibrationOptions& options, const Host& host);

// Throws InputError for a device or transport that is not known, or not measured on the other.
void require_measurable(const CalibrationOptions& options);

// The GPUs that are measured: over nccl all, else the first, twice. Throws InputError in one line where there are none,
// or too few, before anything is measured.
[[nodiscard]] std::vector<std::unique_ptr<Device>> devices_to_measure(const CalibrationOptions& options,
                                                                      const Host& host);

// On the host all ranks that would compute at the same time measure at the same time, one thread each, so that the
// machine is as busy as in a run. On GPUs, which ranks do not share, one measures. Rounds whose sum lies far from the
// median are rejected and repeated; after too many it says so in the profile. Of a tensor group each measures the
// shapes of one of its ranks, and nothing travels between them: collectives are no part of a profile. Throws InputError
// for layer kinds and tensor layouts that are not executed yet, and where there is no such device; plumb::Stopped where
// `stop` ended it.
[[nodiscard]] Profile calibrate(const Scenario& scenario, const CalibrationOptions& options);
[[nodiscard]] Profile calibrate(const Scenario& scenario, const CalibrationOptions& options, const Host& host);

}  // namespace plumb::exec
