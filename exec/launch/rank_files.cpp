#include "exec/launch/rank_files.hpp"

#include <bit>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "common/layout/lane.hpp"
#include "exec/run/messages.hpp"

namespace plumb::exec {
namespace {

using Queues = std::set<std::pair<int, Channel>>;  // by peer

void add_all(Queues& queues, const std::vector<int>& ranks, int self, Channel channel) {
  for (const int rank : ranks) {
    if (rank != self) queues.emplace(rank, channel);
  }
}

Queues queues_of(const Plan& plan, const Schedule& lowered, int rank, bool saves) {
  const Lane lane = lane_of(plan.layout, rank);
  Queues queues;
  for (const Action& action : lowered.actions[static_cast<std::size_t>(lane.pipeline_rank)]) {
    if (!is_send(action.kind) && !is_receive(action.kind)) continue;
    const PeerChannel peer = peer_channel_of(lowered, action);
    queues.emplace(lane.ranks.at(static_cast<std::size_t>(peer.peer)), peer.channel);
  }
  add_all(queues, group(plan.layout, rank, MeshAxis::tensor), rank, Channel::collective);
  for (const Channel channel : {Channel::collective, Channel::sums, Channel::gathers}) {
    add_all(queues, group(plan.layout, rank, MeshAxis::data), rank, channel);
  }
  // Reductions of tied weights and of stages that several ranks hold.
  add_all(queues, lane.ranks, rank, Channel::collective);
  if (lowered.vocabulary_barriers > 0) {  // exchanges of its shards
    for (const Channel channel : {Channel::sums, Channel::gathers}) add_all(queues, lane.ranks, rank, channel);
  }
  if (saves || plan.training.gradient_clipping > 0) {  // collectives of all ranks
    std::vector<int> all(static_cast<std::size_t>(ranks(plan.layout)));
    std::iota(all.begin(), all.end(), 0);
    add_all(queues, all, rank, Channel::collective);
  }
  return queues;
}

}  // namespace

std::int64_t open_files_of_rank(const Plan& plan, const Schedule& lowered, int rank, bool saves) {
  const std::int64_t others = ranks(plan.layout) - 1;
  // Rank 0 asks all for their clocks and gathers their logs; the others answer it, and meet some at barriers
  // (GlooTransport::barrier: one on each side at each distance that is a power of 2).
  const std::int64_t distances = std::bit_width(static_cast<std::uint64_t>(others));
  const std::int64_t control = rank == 0 ? 2 * others : 2 + 2 * distances;
  // A queue goes each way by a link of its own.
  return own_files + others + control + 2 * std::ssize(queues_of(plan, lowered, rank, saves));
}

}  // namespace plumb::exec
