#include "exec/run/lane_transport.hpp"

#include <utility>

namespace plumb::exec {

int LaneTransport::world_rank(int pipeline_rank) const {
  if (pipeline_rank >= 0 && pipeline_rank < size()) return lane_.ranks[static_cast<std::size_t>(pipeline_rank)];
  throw RunError("rank " + std::to_string(world_.rank()),
                 "its pipeline of " + std::to_string(size()) + " ranks has no rank " + std::to_string(pipeline_rank));
}

void LaneTransport::send(int peer, Channel channel, Payload payload) {
  world_.send(world_rank(peer), channel, std::move(payload));
}

void LaneTransport::expect(int peer, Channel channel, std::size_t bytes, int count) {
  world_.expect(world_rank(peer), channel, bytes, count);
}

bool LaneTransport::has_message(int peer, Channel channel) { return world_.has_message(world_rank(peer), channel); }

Received LaneTransport::receive(int peer, Channel channel, Clock::time_point deadline) {
  return world_.receive(world_rank(peer), channel, deadline);
}

void LaneTransport::send_parcel(int peer, Parcel parcel) { world_.send_parcel(world_rank(peer), std::move(parcel)); }

void LaneTransport::expect_parcels(int peer, int count) { world_.expect_parcels(world_rank(peer), count); }

bool LaneTransport::has_parcel(int peer) { return world_.has_parcel(world_rank(peer)); }

ReceivedParcel LaneTransport::receive_parcel(int peer, Clock::time_point deadline) {
  return world_.receive_parcel(world_rank(peer), deadline);
}

void LaneTransport::all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point deadline) {
  std::vector<int> ranks;
  for (const int rank : group) ranks.push_back(world_rank(rank));
  world_.all_reduce(ranks, values, deadline);
}

void LaneTransport::receive_into(const ReceiveArena& arena, int peer, Channel channel,
                                 std::span<const std::int32_t> slots) {
  world_.receive_into(arena, world_rank(peer), channel, slots);
}

}  // namespace plumb::exec
