#include "exec/transport/receive_buffers.hpp"

#include <mutex>

namespace plumb::exec {
namespace {

// Of one size. The oldest of more than so many is used although compute may still be at work with it.
constexpr std::size_t spare = 2;

}  // namespace

struct ReceiveBuffers::Free {
  std::mutex mutex;
  std::map<std::size_t, std::deque<Payload>> by_size;  // `ready`: when compute has let go of it; oldest first
};

ReceiveBuffers::ReceiveBuffers(Device& device) : device_(device), free_(std::make_shared<Free>()) {}

void ReceiveBuffers::plan(int peer, Channel channel, const ReceiveArena& arena, std::span<const std::int32_t> slots) {
  std::deque<Planned>& planned = planned_[{peer, channel}];
  for (const std::int32_t slot : slots) planned.push_back({.arena = arena, .slot = slot});
}

Payload ReceiveBuffers::take(int peer, Channel channel, std::size_t bytes) {
  const auto planned = planned_.find({peer, channel});
  if (planned == planned_.end() || planned->second.empty()) return take(bytes);
  const Planned next = std::move(planned->second.front());
  planned->second.pop_front();
  Payload taken = next.arena.take(next.slot, bytes);
  return taken.data == nullptr ? take(bytes) : taken;
}

Payload ReceiveBuffers::take(std::size_t bytes) {
  if (bytes == 0) return {};
  Payload buffer;
  {
    const std::scoped_lock lock(free_->mutex);
    std::deque<Payload>& free = free_->by_size[bytes];
    if (!free.empty() && (free.size() > spare || has_come(free.front().ready))) {
      buffer = std::move(free.front());
      free.pop_front();
    }
  }
  if (buffer.data == nullptr) buffer = device_.allocate(bytes);
  std::byte* const data = buffer.data;
  MomentPtr ready = std::exchange(buffer.ready, nullptr);
  // The deleter gives it back with the moment from which it is free.
  std::shared_ptr<void> owner(data, [free = free_, device = &device_, buffer = std::move(buffer)](void*) mutable {
    try {
      buffer.ready = device->compute().record();
      const std::scoped_lock lock(free->mutex);
      free->by_size[buffer.size].push_back(std::move(buffer));
    } catch (...) {  // the device has failed, or no memory for the list: then the buffer goes
    }
  });
  return {.owner = std::move(owner), .data = data, .size = bytes, .ready = std::move(ready)};
}

}  // namespace plumb::exec
