// Memory of what collectives send: it may be read when the caller has long changed its own, or freed it after an error.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "exec/device/payload.hpp"
#include "exec/transport/collectives/sum.hpp"

namespace plumb::exec {

inline void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) std::memmove(to.data(), from.data(), from.size());
}

[[nodiscard]] inline std::span<std::byte> bytes_in(const Payload& payload) { return {payload.data, payload.size}; }

[[nodiscard]] inline Payload copy_of(std::span<const std::byte> values) {
  Payload payload = plain_memory(values.size());
  copy(values, bytes_in(payload));
  return payload;
}

// Into `sum`: `own`, of the rank at `position` of the group, and what the others have sent of its size, by position.
inline void add_received(std::span<const std::byte> own, std::size_t position, const std::vector<Payload>& received,
                         std::span<std::byte> sum, ElementType type) {
  std::vector<const std::byte*> parts;
  for (const Payload& payload : received) parts.push_back(payload.data);
  parts[position] = own.data();
  add_in_pairs(parts, type, sum);
}

}  // namespace plumb::exec
