// Memory of what collectives send: it may be read when the caller has long changed its own, or freed it after an error.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "exec/device/payload.hpp"

namespace plumb::exec {

inline void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) std::memmove(to.data(), from.data(), from.size());
}

// Not cleared.
[[nodiscard]] inline Payload memory_of(std::size_t bytes) {
  if (bytes == 0) return {};
  std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  return {.owner = memory, .data = memory.get(), .size = bytes};
}

[[nodiscard]] inline std::span<std::byte> bytes_in(const Payload& payload) { return {payload.data, payload.size}; }

[[nodiscard]] inline Payload copy_of(std::span<const std::byte> values) {
  Payload payload = memory_of(values.size());
  copy(values, bytes_in(payload));
  return payload;
}

}  // namespace plumb::exec
