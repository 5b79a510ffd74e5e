// What the parts of the validator share: the schedule, where its actions stand, and the problems found so far.
#pragma once

#include <string>
#include <vector>

#include "common/schedule/action_index.hpp"
#include "common/schedule/validate/validate.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {

struct ScheduleChecks {
  explicit ScheduleChecks(const Schedule& checked);

  const Schedule& schedule;
  ActionIndex index;
  bool lowered = false;
  std::vector<ScheduleProblem> problems;

  // Of an action with a microbatch; of an eviction the rank that holds the stage.
  [[nodiscard]] int rank_of(const Action& action) const {
    return plumb::rank_of(schedule, action.stage, action.microbatch);
  }

  // The replica whose copy of the stage a rank holds, or −1.
  [[nodiscard]] int replica_on(int rank, int stage) const;

  // The position of an action with a microbatch, or `nowhere` if it is missing or stands on a rank that does not hold
  // its stage: order is only compared on the right rank.
  [[nodiscard]] std::int32_t placed(const Action& action) const;

  // B, or I where the backward is split, of a stage and microbatch.
  [[nodiscard]] Action gradient_action(std::int32_t stage, std::int32_t microbatch) const {
    const bool full = index.find(ActionKind::backward, stage, microbatch) != nowhere;
    return {full ? ActionKind::backward : ActionKind::input_gradient, stage, microbatch};
  }

  // What makes something for the parts of a vocabulary, as makers_of has it, by its name in this schedule.
  [[nodiscard]] Action maker_here(const Action& maker) const {
    return maker.kind == ActionKind::backward ? gradient_action(maker.stage, maker.microbatch) : maker;
  }

  // Where STEP, REDUCE_TIED, REDUCE_GRAD, UNSHARD or CLIP of a replica's stage stands on its rank, or `nowhere`.
  // `update` of a numbered STEP, else 0.
  [[nodiscard]] std::int32_t& end_position(ActionKind kind, int replica, int stage, int update = 0);

  // Where a rank that holds stages clips, or `nowhere`.
  [[nodiscard]] std::int32_t clip_position(int rank);

  // Whether UNSHARD of a replica's stage stands there and before all of the stage's F: it gathers what these need.
  [[nodiscard]] bool gathers_first(int replica, int stage);

  void report(ScheduleProblem::Kind kind, std::vector<int> ranks, std::vector<Action> actions, std::string text) {
    problems.push_back({kind, std::move(ranks), std::move(actions), std::move(text)});
  }

 private:
  std::vector<std::int32_t> steps_;    // by replica, stage and update
  std::vector<std::int32_t> tied_;     // by replica and stage
  std::vector<std::int32_t> reduced_;  // by replica and stage
  std::vector<std::int32_t> gathered_;
  std::vector<std::int32_t> clipped_;
};

// What the parts of a vocabulary do together, by the names of the first rank's parts, in the order of a rank's list.
[[nodiscard]] std::vector<Action> joined_in_order(const Schedule& schedule, std::size_t rank, JoinStream stream);

// In the order in which `validate` calls them.
void check_each_action(ScheduleChecks& checks);   // malformed, misplaced, duplicate
void check_completeness(ScheduleChecks& checks);  // missing
void check_order(ScheduleChecks& checks);         // crossed
void check_messages(ScheduleChecks& checks);      // missing and unmatched messages, crossed messages
void check_evictions(ScheduleChecks& checks);     // halves without the other, loads without evictions, their order
void check_progress(ScheduleChecks& checks);      // deadlock

}  // namespace plumb
