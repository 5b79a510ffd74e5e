// What tests of every transport share: the kinds under test, payloads with known bytes, deadlines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/transport/transport.hpp"

namespace plumb::exec {

struct TransportKind {
  std::string name;
  std::function<std::vector<std::unique_ptr<Transport>>(int ranks)> make;  // all ranks in this process
};

// Local alone where LibTorch is not linked (local_kind.cpp), else also Gloo (all_kinds.cpp), with the lanes of a host
// and without.
[[nodiscard]] std::vector<TransportKind> transport_kinds();

inline Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// `bytes` bytes that tell sender, channel and sequence number.
inline Payload pattern(int sender, Channel channel, int sequence, std::size_t bytes) {
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  const auto seed = static_cast<unsigned>(sender * 89 + sequence * 7 + (channel == Channel::forward ? 3 : 5));
  for (std::size_t i = 0; i < bytes; ++i) (*buffer)[i] = static_cast<std::byte>((seed + i) & 0xffU);
  return {.owner = buffer, .data = buffer->data(), .size = bytes};
}

inline bool same_bytes(const Payload& a, const Payload& b) {
  return a.size == b.size && std::equal(a.data, a.data + a.size, b.data);
}

}  // namespace plumb::exec
