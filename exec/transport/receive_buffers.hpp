// Buffers of a device to receive into, used again when compute has let go of them.
#pragma once

#include <cstddef>
#include <memory>

#include "exec/device/device.hpp"

namespace plumb::exec {

// A buffer that Device::allocate makes may be touched only when all that compute has been given by then has ended, so a
// message into it could not travel beside that work. One that is used again has been let go of longer ago.
class ReceiveBuffers {
 public:
  // `device` must outlive all buffers.
  explicit ReceiveBuffers(Device& device);

  // Of the rank's thread. Whoever drops the owner has put the last use of the bytes into the order of compute, or has
  // seen it end.
  [[nodiscard]] Payload take(std::size_t bytes);

 private:
  struct Free;
  Device& device_;
  std::shared_ptr<Free> free_;  // buffers hold it, too
};

}  // namespace plumb::exec
