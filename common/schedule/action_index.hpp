// Where every action of a schedule stands, in flat arrays: what lowering, validation and the graph look things up in.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// A schedule with more pairs of stage and microbatch than this is refused: some GB of actions, surely a slip.
inline constexpr std::int64_t largest_schedule = std::int64_t{1} << 23;

inline constexpr std::size_t kinds_with_microbatch = static_cast<std::size_t>(ActionKind::receive_backward) + 1;
inline constexpr std::int32_t nowhere = -1;

// Positions count through all ranks' lists, one after the other.
struct ActionIndex {
  std::int32_t microbatches = 1;
  std::vector<std::int32_t> first_of_rank;  // ranks + 1 entries
  std::array<std::vector<std::int32_t>, kinds_with_microbatch>
      positions;  // per kind, by stage · microbatches + microbatch

  // The first such action, or `nowhere`. Stage and microbatch must be in range.
  [[nodiscard]] std::int32_t find(ActionKind kind, std::int32_t stage, std::int32_t microbatch) const {
    return positions[static_cast<std::size_t>(kind)]
                    [static_cast<std::size_t>(stage) * static_cast<std::size_t>(microbatches) +
                     static_cast<std::size_t>(microbatch)];
  }
  // B, or I where the backward is split, or `nowhere`.
  [[nodiscard]] std::int32_t find_gradient(std::int32_t stage, std::int32_t microbatch) const {
    const std::int32_t full = find(ActionKind::backward, stage, microbatch);
    return full != nowhere ? full : find(ActionKind::input_gradient, stage, microbatch);
  }
  [[nodiscard]] std::int32_t find(const Action& action) const {
    return find(action.kind, action.stage, action.microbatch);
  }
};

// Whether stage and, if it has one, microbatch exist in this schedule.
[[nodiscard]] bool in_range(const Schedule& schedule, const Action& action);

// Throws InputError (where = "schedule") unless ranks, placement and lists fit together and sizes are sane.
void require_well_formed(const Schedule& schedule);

// Of a well-formed schedule; actions out of range are left out.
[[nodiscard]] ActionIndex index_actions(const Schedule& schedule);

// True if anything but compute actions stands in it.
[[nodiscard]] bool is_lowered(const Schedule& schedule);

// True if stage and stage + 1 stand on two ranks, so that messages pass between them.
[[nodiscard]] inline bool crosses_ranks(const Schedule& schedule, int stage) {
  return schedule.rank_of_stage[static_cast<std::size_t>(stage)] !=
         schedule.rank_of_stage[static_cast<std::size_t>(stage) + 1];
}

// The message that an action makes for another rank, if its neighbour stands there: SEND_F after F, SEND_B after B or
// I.
struct Message {
  Action send;
  Action receive;
  int from = 0;
  int to = 0;
};
[[nodiscard]] bool makes_message(const Schedule& schedule, const Action& producer);
// Precondition: makes_message.
[[nodiscard]] Message message_of(const Schedule& schedule, const Action& producer);

// Messages that pair up in order: those of one directed pair of ranks and one direction of the pipeline.
struct MessageQueues {
  int count = 0;
  // By stage boundary (between stage b and b + 1): the queue of its activations and of its gradients.
  std::vector<int> forward;
  std::vector<int> backward;

  // Of a send or receive that crosses ranks.
  [[nodiscard]] int queue_of(const Action& message) const;
};
[[nodiscard]] MessageQueues message_queues(const Schedule& schedule);

}  // namespace plumb
