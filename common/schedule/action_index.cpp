#include "common/schedule/action_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "common/base/error.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {

bool in_range(const Schedule& schedule, const Action& action) {
  if (action.stage < 0 || action.stage >= all_stages(schedule)) return false;
  if (joins_parts(action.kind) && action.stage < stages(schedule)) return false;
  if (action.kind == ActionKind::optimizer_step && schedule.update_every > 0) {
    return action.microbatch >= 0 && action.microbatch < updates(schedule);
  }
  if (!has_microbatch(action.kind)) return action.microbatch == no_microbatch;
  return action.microbatch >= 0 && action.microbatch < schedule.microbatches;
}

namespace {

[[noreturn]] void refuse(const std::string& problem) { throw InputError("schedule", problem); }

void require_placement(const Schedule& schedule, const std::vector<int>& rank_of_stage) {
  for (std::size_t stage = 0; stage < rank_of_stage.size(); ++stage) {
    const int rank = rank_of_stage[stage];
    if (rank < 0 || rank >= schedule.ranks) {
      refuse(fmt::format("stage {} stands on rank {}, expected 0 to {}", stage, rank, schedule.ranks - 1));
    }
  }
}

void require_second_replica(const Schedule& schedule) {
  if (schedule.second_rank_of_stage.empty()) return;
  if (schedule.second_rank_of_stage.size() != schedule.rank_of_stage.size()) {
    refuse(
        fmt::format("{} stages, but {} in the second replica", stages(schedule), schedule.second_rank_of_stage.size()));
  }
  require_placement(schedule, schedule.second_rank_of_stage);
  for (int stage = 0; stage < stages(schedule); ++stage) {
    if (rank_in_replica(schedule, 0, stage) != rank_in_replica(schedule, 1, stage)) continue;
    refuse(fmt::format("both replicas of stage {} stand on rank {}", stage, rank_in_replica(schedule, 0, stage)));
  }
  if (schedule.microbatches % 2 != 0) {
    refuse(fmt::format("{} microbatches do not divide between two replicas", schedule.microbatches));
  }
}

}  // namespace

void require_well_formed(const Schedule& schedule) {
  if (schedule.ranks < 1 || schedule.microbatches < 1 || schedule.rank_of_stage.empty()) {
    refuse(fmt::format("{} ranks, {} stages and {} microbatches: each must be at least 1", schedule.ranks,
                       stages(schedule), schedule.microbatches));
  }
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.ranks)) {
    refuse(fmt::format("{} ranks, but {} lists of actions", schedule.ranks, schedule.actions.size()));
  }
  require_placement(schedule, schedule.rank_of_stage);
  require_second_replica(schedule);
  if (schedule.slices < 1 || schedule.microbatches % schedule.slices != 0) {
    refuse(fmt::format("{} slices of sequences, which do not divide its {} microbatches of slices", schedule.slices,
                       schedule.microbatches));
  }
  if (!schedule.slice_tokens.empty() && schedule.slice_tokens.size() != static_cast<std::size_t>(schedule.slices)) {
    refuse(fmt::format("tokens of {} slices, but {} slices", schedule.slice_tokens.size(), schedule.slices));
  }
  if (std::ranges::any_of(schedule.slice_tokens, [](std::int64_t tokens) { return tokens < 1; })) {
    refuse("a slice without tokens");
  }
  if (schedule.update_every < 0 || (schedule.update_every == 0) != (schedule.versions == WeightVersions::single)) {
    refuse(fmt::format("weights are updated every {} microbatches, which does not agree with their versions",
                       schedule.update_every));
  }
  if (schedule.update_every > 0 && replicas(schedule) > 1) {
    refuse("several updates of two replicas are not built");
  }
  require_parts(schedule);
  const std::int64_t pairs = std::int64_t{all_stages(schedule)} * schedule.microbatches;
  if (pairs > largest_schedule) {
    refuse(fmt::format("{} stages times {} microbatches are {} pairs, more than {}", all_stages(schedule),
                       schedule.microbatches, pairs, largest_schedule));
  }
}

int ActionIndex::rank_at(std::int32_t position) const {
  return static_cast<int>(std::ranges::upper_bound(first_of_rank, position) - first_of_rank.begin()) - 1;
}

ActionIndex index_actions(const Schedule& schedule) {
  ActionIndex index{.microbatches = schedule.microbatches, .first_of_rank = {0}, .positions = {}};
  const auto pairs = schedule.rank_of_stage.size() * static_cast<std::size_t>(schedule.microbatches);
  for (std::size_t kind = 0; kind < index.positions.size(); ++kind) {
    const bool joins = joins_parts(static_cast<ActionKind>(kind));
    if (!joins || schedule.vocabulary_barriers > 0) index.positions[kind].assign(pairs, nowhere);
  }
  std::int32_t position = 0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
      if (has_microbatch(action.kind) && in_range(schedule, action)) {
        std::vector<std::int32_t>* of_kind = &index.positions[static_cast<std::size_t>(action.kind)];
        if (is_eviction(action.kind) && rank_of(schedule, action.stage, action.microbatch) != rank) {
          of_kind = &index.partner_positions[action.kind == ActionKind::evict ? 0 : 1];
          if (of_kind->empty()) of_kind->assign(pairs, nowhere);
        }
        auto& entry =
            (*of_kind)[static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(schedule.microbatches) +
                       static_cast<std::size_t>(action.microbatch)];
        if (entry == nowhere) entry = position;
      }
      ++position;
    }
    index.first_of_rank.push_back(position);
  }
  return index;
}

bool is_added_by_lowering(const Schedule& schedule, const Action& action) {
  const bool own_step = action.kind == ActionKind::optimizer_step && schedule.update_every > 0;
  return !is_compute(action.kind) && !is_eviction(action.kind) && !own_step;
}

bool is_lowered(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [&](const auto& list) {
    return std::ranges::any_of(list, [&](const Action& action) { return is_added_by_lowering(schedule, action); });
  });
}

std::vector<bool> pair_begins(const Schedule& schedule, const ActionIndex& index) {
  std::vector<bool> begins(static_cast<std::size_t>(index.first_of_rank.back()), false);
  for (const OverlappedPair& pair : schedule.overlapped) {
    if (!is_compute(pair.first.kind) || !is_compute(pair.second.kind)) continue;
    if (!in_range(schedule, pair.first) || !in_range(schedule, pair.second)) continue;
    const std::int32_t first = index.find(pair.first);
    if (first == nowhere || index.find(pair.second) != first + 1) continue;
    if (index.rank_at(first) == index.rank_at(first + 1)) begins[static_cast<std::size_t>(first)] = true;
  }
  return begins;
}

std::int32_t input_of(const ActionIndex& index, const Schedule& schedule, const Action& consumer) {
  if (is_part(schedule, consumer.stage)) return nowhere;
  switch (consumer.kind) {
    case ActionKind::forward:
      return consumer.stage == 0 ? nowhere
                                 : index.find(ActionKind::forward, producer_stage(consumer), consumer.microbatch);
    case ActionKind::backward:
    case ActionKind::input_gradient:
      return consumer.stage + 1 == stages(schedule)
                 ? nowhere
                 : index.find_gradient(producer_stage(consumer), consumer.microbatch);
    default:
      return nowhere;
  }
}

bool makes_message(const Schedule& schedule, const Action& producer) {
  if (is_part(schedule, producer.stage)) return false;
  switch (producer.kind) {
    case ActionKind::forward:
      return producer.stage + 1 < stages(schedule) && crosses_ranks(schedule, producer.stage, producer.microbatch);
    case ActionKind::backward:
    case ActionKind::input_gradient:
      return producer.stage > 0 && crosses_ranks(schedule, producer.stage - 1, producer.microbatch);
    default:
      return false;
  }
}

Message message_of(const Schedule& schedule, const Action& producer) {
  const ActionKind kind = goes_forward(producer.kind) ? ActionKind::send_forward : ActionKind::send_backward;
  const Action send{kind, producer.stage, producer.microbatch};
  const Action receive = other_end(send);
  return {.send = send,
          .receive = receive,
          .from = rank_of(schedule, send.stage, send.microbatch),
          .to = rank_of(schedule, receive.stage, receive.microbatch)};
}

int MessageQueues::queue_of(const Action& message) const {
  const std::size_t replica = message.microbatch >= second_replica_from ? 1 : 0;
  switch (message.kind) {
    case ActionKind::send_forward:
      return forward[replica][static_cast<std::size_t>(message.stage)];
    case ActionKind::receive_forward:
      return forward[replica][static_cast<std::size_t>(message.stage) - 1];
    case ActionKind::send_backward:
      return backward[replica][static_cast<std::size_t>(message.stage) - 1];
    default:
      return backward[replica][static_cast<std::size_t>(message.stage)];
  }
}

MessageQueues message_queues(const Schedule& schedule) {
  using Key = std::tuple<int, int, bool>;  // from, to, backward
  const int boundaries = stages(schedule) - 1;
  const auto key = [&](int replica, int boundary, bool backward) {
    const int lower = rank_in_replica(schedule, replica, boundary);
    const int upper = rank_in_replica(schedule, replica, boundary + 1);
    return backward ? Key{upper, lower, true} : Key{lower, upper, false};
  };
  std::vector<Key> keys;
  for (int replica = 0; replica < replicas(schedule); ++replica) {
    for (int boundary = 0; boundary < boundaries; ++boundary) {
      keys.push_back(key(replica, boundary, false));
      keys.push_back(key(replica, boundary, true));
    }
  }
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  MessageQueues queues{
      .count = static_cast<int>(keys.size()),
      .second_replica_from = replicas(schedule) == 2 ? schedule.microbatches / 2 : schedule.microbatches,
      .forward = {},
      .backward = {}};
  const auto number = [&](const Key& wanted) {
    return static_cast<int>(std::ranges::lower_bound(keys, wanted) - keys.begin());
  };
  for (int replica = 0; replica < replicas(schedule); ++replica) {
    for (int boundary = 0; boundary < boundaries; ++boundary) {
      queues.forward[static_cast<std::size_t>(replica)].push_back(number(key(replica, boundary, false)));
      queues.backward[static_cast<std::size_t>(replica)].push_back(number(key(replica, boundary, true)));
    }
  }
  return queues;
}

}  // namespace plumb
