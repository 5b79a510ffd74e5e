#include "common/schedule/validate/checks.hpp"

#include <algorithm>

namespace plumb {

ScheduleChecks::ScheduleChecks(const Schedule& checked)
    : schedule(checked), index(index_actions(checked)), lowered(is_lowered(checked)) {
  const std::size_t held = checked.rank_of_stage.size() * static_cast<std::size_t>(replicas(checked));
  steps_.assign(held * static_cast<std::size_t>(std::max(1, updates(checked))), nowhere);
  tied_.assign(held, nowhere);
  reduced_.assign(held, nowhere);
  gathered_.assign(held, nowhere);
  clipped_.assign(held, nowhere);
}

int ScheduleChecks::replica_on(int rank, int stage) const {
  for (int replica = 0; replica < replicas(schedule); ++replica) {
    if (rank_in_replica(schedule, replica, stage) == rank) return replica;
  }
  return -1;
}

std::int32_t ScheduleChecks::placed(const Action& action) const {
  const std::int32_t position = index.find(action);
  const auto rank = static_cast<std::size_t>(rank_of(action));
  const bool there = position >= index.first_of_rank[rank] && position < index.first_of_rank[rank + 1];
  return there ? position : nowhere;
}

bool ScheduleChecks::gathers_first(int replica, int stage) {
  const std::int32_t gathered_at = end_position(ActionKind::unshard, replica, stage);
  if (gathered_at == nowhere) return false;
  for (int k = 0; k < schedule.microbatches; ++k) {
    if (replica_of(schedule, k) != replica) continue;
    const std::int32_t at = placed({ActionKind::forward, stage, k});
    if (at != nowhere && at < gathered_at) return false;
  }
  return true;
}

std::int32_t ScheduleChecks::clip_position(int rank) {
  const Action clip = clip_of(schedule, rank);
  return end_position(clip.kind, replica_on(rank, clip.stage), clip.stage);
}

std::int32_t& ScheduleChecks::end_position(ActionKind kind, int replica, int stage, int update) {
  const std::size_t place =
      static_cast<std::size_t>(replica) * schedule.rank_of_stage.size() + static_cast<std::size_t>(stage);
  if (kind == ActionKind::reduce_tied) return tied_[place];
  if (kind == ActionKind::reduce_gradient) return reduced_[place];
  if (kind == ActionKind::unshard) return gathered_[place];
  if (kind == ActionKind::clip_gradients) return clipped_[place];
  return steps_[place * static_cast<std::size_t>(std::max(1, updates(schedule))) + static_cast<std::size_t>(update)];
}

}  // namespace plumb
