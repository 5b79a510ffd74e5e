// A rank's sends and receives as its transport sees them: peers and channels.
#pragma once

#include <compare>
#include <vector>

#include "common/schedule/schedule.hpp"
#include "exec/transport/receive_arena.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

struct PeerChannel {
  int peer = -1;
  Channel channel = Channel::forward;
  auto operator<=>(const PeerChannel&) const = default;
};

// Of a SEND or RECV, from the rank in whose list it stands. Throws RunError where the other end is no stage.
[[nodiscard]] PeerChannel peer_channel_of(const Schedule& lowered, const Action& message);

// Tells the transport of all messages that its rank receives in a step, of so many bytes (each slice's, or one for
// all), and, unless `arena` is null, which slot each has. Throws RunError for an arena that was planned for another
// list.
void announce_receives(const Schedule& lowered, const std::vector<Bytes>& bytes, const ReceiveArena* arena,
                       Transport& transport);

}  // namespace plumb::exec
