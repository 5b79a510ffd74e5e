// Bytes that travel between stages and ranks, and when they may be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

class Moment;                                     // exec/device/device.hpp
using MomentPtr = std::shared_ptr<const Moment>;  // null: it has come long ago

// Bytes and whoever keeps them alive. Empty: no bytes.
struct Payload {
  std::shared_ptr<void> owner;
  std::byte* data = nullptr;
  std::size_t size = 0;
  // From when they may be touched. Of a value: it is there from then on. Of a buffer to receive into: what was done
  // with its memory before has ended. Always null on the host, where both are so when a call returns.
  MomentPtr ready = {};
};

// Memory of the host, not cleared, that no account counts.
[[nodiscard]] inline Payload plain_memory(std::size_t bytes) {
  std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  return {.owner = memory, .data = memory.get(), .size = bytes};
}

// Several payloads that travel as one message, in their order.
using Parcel = std::vector<Payload>;

[[nodiscard]] inline Bytes bytes_of(const Parcel& parcel) {
  Bytes bytes;
  for (const Payload& part : parcel) bytes += Bytes{static_cast<std::int64_t>(part.size)};
  return bytes;
}

}  // namespace plumb::exec
