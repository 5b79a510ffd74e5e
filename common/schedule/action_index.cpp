#include "common/schedule/action_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "common/base/error.hpp"

namespace plumb {

bool in_range(const Schedule& schedule, const Action& action) {
  if (action.stage < 0 || action.stage >= stages(schedule)) return false;
  if (!has_microbatch(action.kind)) return action.microbatch == no_microbatch;
  return action.microbatch >= 0 && action.microbatch < schedule.microbatches;
}

void require_well_formed(const Schedule& schedule) {
  const auto refuse = [](const std::string& problem) { throw InputError("schedule", problem); };
  if (schedule.ranks < 1 || schedule.microbatches < 1 || schedule.rank_of_stage.empty()) {
    refuse(fmt::format("{} ranks, {} stages and {} microbatches: each must be at least 1", schedule.ranks,
                       stages(schedule), schedule.microbatches));
  }
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.ranks)) {
    refuse(fmt::format("{} ranks, but {} lists of actions", schedule.ranks, schedule.actions.size()));
  }
  for (std::size_t stage = 0; stage < schedule.rank_of_stage.size(); ++stage) {
    const int rank = schedule.rank_of_stage[stage];
    if (rank < 0 || rank >= schedule.ranks) {
      refuse(fmt::format("stage {} stands on rank {}, expected 0 to {}", stage, rank, schedule.ranks - 1));
    }
  }
  const std::int64_t pairs = std::int64_t{stages(schedule)} * schedule.microbatches;
  if (pairs > largest_schedule) {
    refuse(fmt::format("{} stages times {} microbatches are more than {} pairs", stages(schedule),
                       schedule.microbatches, largest_schedule));
  }
}

ActionIndex index_actions(const Schedule& schedule) {
  ActionIndex index{.microbatches = schedule.microbatches, .first_of_rank = {0}, .positions = {}};
  const auto pairs = schedule.rank_of_stage.size() * static_cast<std::size_t>(schedule.microbatches);
  for (auto& of_kind : index.positions) of_kind.assign(pairs, nowhere);
  std::int32_t position = 0;
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      if (static_cast<std::size_t>(action.kind) < kinds_with_microbatch && in_range(schedule, action)) {
        auto& entry =
            index.positions[static_cast<std::size_t>(action.kind)]
                           [static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(schedule.microbatches) +
                            static_cast<std::size_t>(action.microbatch)];
        if (entry == nowhere) entry = position;
      }
      ++position;
    }
    index.first_of_rank.push_back(position);
  }
  return index;
}

bool is_lowered(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& list) {
    return std::ranges::any_of(list, [](const Action& action) { return !is_compute(action.kind); });
  });
}

bool makes_message(const Schedule& schedule, const Action& producer) {
  switch (producer.kind) {
    case ActionKind::forward:
      return producer.stage + 1 < stages(schedule) && crosses_ranks(schedule, producer.stage);
    case ActionKind::backward:
    case ActionKind::input_gradient:
      return producer.stage > 0 && crosses_ranks(schedule, producer.stage - 1);
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
          .from = schedule.rank_of_stage[static_cast<std::size_t>(send.stage)],
          .to = schedule.rank_of_stage[static_cast<std::size_t>(receive.stage)]};
}

int MessageQueues::queue_of(const Action& message) const {
  switch (message.kind) {
    case ActionKind::send_forward:
      return forward[static_cast<std::size_t>(message.stage)];
    case ActionKind::receive_forward:
      return forward[static_cast<std::size_t>(message.stage) - 1];
    case ActionKind::send_backward:
      return backward[static_cast<std::size_t>(message.stage) - 1];
    default:
      return backward[static_cast<std::size_t>(message.stage)];
  }
}

MessageQueues message_queues(const Schedule& schedule) {
  using Key = std::tuple<int, int, bool>;  // from, to, backward
  const std::size_t boundaries = schedule.rank_of_stage.size() - 1;
  const auto key = [&](std::size_t boundary, bool backward) {
    const int lower = schedule.rank_of_stage[boundary];
    const int upper = schedule.rank_of_stage[boundary + 1];
    return backward ? Key{upper, lower, true} : Key{lower, upper, false};
  };
  std::vector<Key> keys;
  for (std::size_t boundary = 0; boundary < boundaries; ++boundary) {
    keys.push_back(key(boundary, false));
    keys.push_back(key(boundary, true));
  }
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  MessageQueues queues{.count = static_cast<int>(keys.size()), .forward = {}, .backward = {}};
  const auto number = [&](const Key& wanted) {
    return static_cast<int>(std::ranges::lower_bound(keys, wanted) - keys.begin());
  };
  for (std::size_t boundary = 0; boundary < boundaries; ++boundary) {
    queues.forward.push_back(number(key(boundary, false)));
    queues.backward.push_back(number(key(boundary, true)));
  }
  return queues;
}

}  // namespace plumb
