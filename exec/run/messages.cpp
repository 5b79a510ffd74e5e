#include "exec/run/messages.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/schedule/slices.hpp"

namespace plumb::exec {

PeerChannel peer_channel_of(const Schedule& lowered, const Action& message) {
  const int other = is_send(message.kind) ? consumer_stage(message) : producer_stage(message);
  if (other < 0 || other >= stages(lowered)) throw RunError("", "there is no stage " + std::to_string(other));
  return {.peer = rank_of(lowered, other, message.microbatch),
          .channel = goes_forward(message.kind) ? Channel::forward : Channel::backward};
}

void announce_receives(const Schedule& lowered, const std::vector<Bytes>& bytes, const ReceiveArena* arena,
                       Transport& transport) {
  const auto& actions = lowered.actions[static_cast<std::size_t>(transport.rank())];
  if (arena != nullptr && arena->plan().slot_of.size() != actions.size()) {
    throw RunError("", "the memory to receive into was planned for another list of actions");
  }
  struct Announced {
    std::size_t bytes = 0;
    int count = 0;
  };
  std::map<PeerChannel, std::vector<Announced>> messages;
  std::map<PeerChannel, std::vector<std::int32_t>> slots;
  for (std::size_t place = 0; place < actions.size(); ++place) {
    if (!is_receive(actions[place].kind)) continue;
    const PeerChannel queue = peer_channel_of(lowered, actions[place]);
    std::vector<Announced>& of_queue = messages[queue];
    const auto size = static_cast<std::size_t>(of_slice(bytes, actions[place].microbatch).value);
    if (of_queue.empty() || of_queue.back().bytes != size) of_queue.push_back({.bytes = size});
    ++of_queue.back().count;
    if (arena != nullptr && size > 0) slots[queue].push_back(arena->plan().slot_of[place]);
  }
  for (const auto& [queue, of_queue] : messages) {
    for (const auto& [size, count] : of_queue) transport.expect(queue.peer, queue.channel, size, count);
  }
  for (const auto& [queue, of_queue] : slots) transport.receive_into(*arena, queue.peer, queue.channel, of_queue);
}

}  // namespace plumb::exec
