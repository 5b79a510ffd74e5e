// What the parts of the validator share: the schedule, where its actions stand, and the problems found so far.
#pragma once

#include <string>
#include <vector>

#include "common/schedule/action_index.hpp"
#include "common/schedule/validate.hpp"

namespace plumb {

struct ScheduleChecks {
  const Schedule& schedule;
  ActionIndex index;
  std::vector<std::int32_t> step_of_stage;  // positions, or nowhere
  std::vector<std::int32_t> tied_of_stage;
  bool lowered = false;
  std::vector<ScheduleProblem> problems;

  [[nodiscard]] int rank_of(const Action& action) const {
    return schedule.rank_of_stage[static_cast<std::size_t>(action.stage)];
  }

  // The position of an action with a microbatch, or `nowhere` if it is missing or stands on a rank that does not hold
  // its stage: order is only compared on the right rank.
  [[nodiscard]] std::int32_t placed(const Action& action) const { return on_own_rank(action, index.find(action)); }

  // B, or I where the backward is split, of a stage and microbatch.
  [[nodiscard]] Action gradient_action(std::int32_t stage, std::int32_t microbatch) const {
    const bool full = index.find(ActionKind::backward, stage, microbatch) != nowhere;
    return {full ? ActionKind::backward : ActionKind::input_gradient, stage, microbatch};
  }

  [[nodiscard]] std::int32_t on_own_rank(const Action& action, std::int32_t position) const {
    const auto rank = static_cast<std::size_t>(rank_of(action));
    const bool there = position >= index.first_of_rank[rank] && position < index.first_of_rank[rank + 1];
    return there ? position : nowhere;
  }

  void report(ScheduleProblem::Kind kind, std::vector<int> ranks, std::vector<Action> actions, std::string text) {
    problems.push_back({kind, std::move(ranks), std::move(actions), std::move(text)});
  }
};

// In the order in which `validate` calls them.
void check_each_action(ScheduleChecks& checks);   // malformed, misplaced, duplicate
void check_completeness(ScheduleChecks& checks);  // missing
void check_order(ScheduleChecks& checks);         // crossed
void check_messages(ScheduleChecks& checks);      // missing and unmatched messages, crossed messages
void check_progress(ScheduleChecks& checks);      // deadlock

}  // namespace plumb
