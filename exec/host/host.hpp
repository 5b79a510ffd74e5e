// What the ranks of a host find there: its devices, and NCCL's library.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "exec/device/device.hpp"
#include "exec/device/device_facts.hpp"
#include "exec/host/host_identity.hpp"

namespace plumb::exec {

// Tests put others in their place, and have ranks that are threads, which cannot all watch the process's signals.
struct Host {
  std::function<int()> visible_devices;
  std::function<std::unique_ptr<Device>(int index)> make_device;  // throws InputError where it is not there
  std::function<std::optional<DeviceFacts>(int index)> device_facts;
  std::string nccl_library = {};  // empty: searched
  bool watches_signals = true;
  bool tells_streams = true;  // LibTorch tells the handles of its streams, which NCCL takes
  HostIdentity identity = {};
};

// LibTorch's accelerators.
[[nodiscard]] Host this_host();

// Throws InputError where LibTorch is too old for NCCL.
void require_streams_for_nccl(const Host& host);

// Throws InputError for any word but "cpu" and "cuda".
void require_kind_of_device(const std::string& kind);

}  // namespace plumb::exec
