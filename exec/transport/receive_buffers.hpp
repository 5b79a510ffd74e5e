// Memory of a device to receive into: planned slots for messages, and buffers that are used again for all else.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "exec/device/device.hpp"
#include "exec/transport/receive_arena.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// A buffer that Device::allocate makes may be touched only when all that compute has been given by then has ended, so a
// message into it could not travel beside that work. What is used again has been let go of longer ago.
class ReceiveBuffers {
 public:
  // `device` must outlive all buffers.
  explicit ReceiveBuffers(Device& device);

  // The next messages of a peer go into these slots, behind those that are planned already.
  void plan(int peer, Channel channel, const ReceiveArena& arena, std::span<const std::int32_t> slots);

  // All of the rank's thread. Whoever drops the owner has put the last use of the bytes into the order of compute, or
  // has seen it end.
  // For the next message of a peer. One that is not planned, or whose slot is held longer than planned, gets a buffer
  // of the list: a step whose stages or host are not as the plan has them is right all the same, at the price of
  // memory, which the run reports (ReceiveArena::refused); an error would end a training run over a prediction.
  [[nodiscard]] Payload take(int peer, Channel channel, std::size_t bytes);
  // From the list, which grows by need: of parcels only stages know the sizes, within the step.
  [[nodiscard]] Payload take(std::size_t bytes);

 private:
  struct Free;
  struct Planned {
    ReceiveArena arena;
    std::int32_t slot = 0;
  };

  Device& device_;
  std::shared_ptr<Free> free_;  // buffers hold it, too
  std::map<std::pair<int, Channel>, std::deque<Planned>> planned_;
};

}  // namespace plumb::exec
