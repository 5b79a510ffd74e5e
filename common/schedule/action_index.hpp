// Where every action of a schedule stands, in flat arrays: what lowering, validation and the graph look things up in.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// A schedule with more pairs of stage and microbatch than this is refused: some GB of actions, surely a slip.
inline constexpr std::int64_t largest_schedule = std::int64_t{1} << 23;

// Chunks of a rank, slices, microbatches of a group or of an update: more than this are refused where they are read.
inline constexpr int most_chunks = 4096;

inline constexpr std::size_t kinds_with_microbatch = static_cast<std::size_t>(ActionKind::reduce) + 1;
inline constexpr std::int32_t nowhere = -1;

// Positions count through all ranks' lists, one after the other.
struct ActionIndex {
  std::int32_t microbatches = 1;
  std::vector<std::int32_t> first_of_rank;  // ranks + 1 entries
  std::array<std::vector<std::int32_t>, kinds_with_microbatch>
      positions;  // per kind, by stage · microbatches + microbatch; of evictions on the rank that holds the stage;
                  // of a kind that joins parts of a vocabulary empty where there are none
  std::array<std::vector<std::int32_t>, 2> partner_positions =
      {};  // of EVICT and LOAD on the partner; empty: there are none

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
  // The partner's half of an EVICT or LOAD, or `nowhere`.
  [[nodiscard]] std::int32_t find_partner(const Action& eviction) const {
    const auto& of_kind = partner_positions[eviction.kind == ActionKind::evict ? 0 : 1];
    if (of_kind.empty()) return nowhere;
    return of_kind[static_cast<std::size_t>(eviction.stage) * static_cast<std::size_t>(microbatches) +
                   static_cast<std::size_t>(eviction.microbatch)];
  }
  // The rank in whose list a position lies.
  [[nodiscard]] int rank_at(std::int32_t position) const;
};

// How many numbered optimizer steps each stage has; 0 if STEP has no number.
[[nodiscard]] inline int updates(const Schedule& schedule) {
  if (schedule.update_every < 1) return 0;
  return (schedule.microbatches + schedule.update_every - 1) / schedule.update_every;
}

// Whether stage and, if it has one, microbatch (of a numbered STEP the update) exist in this schedule.
[[nodiscard]] bool in_range(const Schedule& schedule, const Action& action);

// Throws InputError (where = "schedule") unless ranks, placement and lists fit together and sizes are sane.
void require_well_formed(const Schedule& schedule);

// Of a well-formed schedule; actions out of range are left out.
[[nodiscard]] ActionIndex index_actions(const Schedule& schedule);

// Messages, reductions and optimizer steps without a number: what `lower` adds.
[[nodiscard]] bool is_added_by_lowering(const Schedule& schedule, const Action& action);

// True if it has any of those.
[[nodiscard]] bool is_lowered(const Schedule& schedule);

// By position through all lists: true where an overlapped pair begins, whose second action stands next. Pairs that do
// not stand so are left out.
[[nodiscard]] std::vector<bool> pair_begins(const Schedule& schedule, const ActionIndex& index);

// True if stage and stage + 1 stand on two ranks in the microbatch's replica, so that messages pass between them.
[[nodiscard]] inline bool crosses_ranks(const Schedule& schedule, int stage, int microbatch) {
  return rank_of(schedule, stage, microbatch) != rank_of(schedule, stage + 1, microbatch);
}

// Where what an F, B or I needs of the neighbouring stage is made, or `nowhere`.
[[nodiscard]] std::int32_t input_of(const ActionIndex& index, const Schedule& schedule, const Action& consumer);

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
  int second_replica_from = 0;  // its first microbatch
  // Per replica, by stage boundary (between stage b and b + 1): the queue of its activations and of its gradients.
  std::array<std::vector<int>, 2> forward;
  std::array<std::vector<int>, 2> backward;

  // Of a send or receive that crosses ranks.
  [[nodiscard]] int queue_of(const Action& message) const;
};
[[nodiscard]] MessageQueues message_queues(const Schedule& schedule);

}  // namespace plumb
