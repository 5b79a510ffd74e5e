// The host as a device: its one thread does everything at once, in the order of the calls.
#pragma once

#include <memory>

#include "exec/device/device.hpp"

namespace plumb::exec {

// A moment is the time of its record(); all have come. Memory is plain and aligned to 64 bytes.
[[nodiscard]] std::unique_ptr<Device> make_host_device();

}  // namespace plumb::exec
