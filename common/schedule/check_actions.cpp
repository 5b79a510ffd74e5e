#include <fmt/format.h>

#include "common/schedule/checks.hpp"

namespace plumb {
namespace {

using Kind = ScheduleProblem::Kind;

bool is_built(ActionKind kind) {
  return has_microbatch(kind) ? kind <= ActionKind::receive_backward
                              : kind == ActionKind::reduce_tied || kind == ActionKind::optimizer_step;
}

// Why this message cannot be, or empty: it has no stage at its other end, or that stands on the same rank.
std::string message_fault(const Schedule& schedule, const Action& action) {
  const int other = is_send(action.kind) ? consumer_stage(action) : producer_stage(action);
  if (other < 0 || other >= stages(schedule)) return "there is no stage at its other end";
  if (!crosses_ranks(schedule, std::min(action.stage, other))) {
    return fmt::format("stage {} stands on the same rank, which needs no message", other);
  }
  return "";
}

std::string malformed_because(const Schedule& schedule, const Action& action) {
  if (!is_built(action.kind)) return fmt::format("{} is planned and not built yet", letters(action.kind));
  if (!in_range(schedule, action)) {
    return fmt::format("out of range, there are {} stages and {} microbatches", stages(schedule),
                       schedule.microbatches);
  }
  if (is_send(action.kind) || is_receive(action.kind)) return message_fault(schedule, action);
  if (action.kind == ActionKind::reduce_tied && action.stage != 0 && action.stage + 1 != stages(schedule)) {
    return "only the first and the last stage can be tied";
  }
  return "";
}

// The first position of this action; remembers it for the actions without a microbatch.
std::int32_t first_position(ScheduleChecks& checks, const Action& action, std::int32_t position) {
  if (has_microbatch(action.kind)) return checks.index.find(action);
  auto& of_stage = action.kind == ActionKind::optimizer_step ? checks.step_of_stage : checks.tied_of_stage;
  auto& entry = of_stage[static_cast<std::size_t>(action.stage)];
  if (entry == nowhere) entry = position;
  return entry;
}

void check_action(ScheduleChecks& checks, int rank, const Action& action, std::int32_t position) {
  const std::string fault = malformed_because(checks.schedule, action);
  if (!fault.empty()) {
    checks.report(Kind::malformed, {rank}, {action}, fmt::format("rank {}: {}: {}", rank, to_string(action), fault));
    return;
  }
  if (checks.rank_of(action) != rank) {
    checks.report(Kind::misplaced, {rank}, {action},
                  fmt::format("rank {}: {}: stage {} stands on rank {}", rank, to_string(action), action.stage,
                              checks.rank_of(action)));
  }
  if (first_position(checks, action, position) != position) {
    checks.report(Kind::duplicate, {rank}, {action},
                  fmt::format("rank {}: {} stands there a second time", rank, to_string(action)));
  }
}

void check_one_backward(ScheduleChecks& checks, std::int32_t stage, std::int32_t microbatch) {
  const Action full{ActionKind::backward, stage, microbatch};
  if (checks.index.find(full) == nowhere) return;
  for (const ActionKind kind : {ActionKind::input_gradient, ActionKind::weight_gradient}) {
    const Action half{kind, stage, microbatch};
    if (checks.index.find(half) == nowhere) continue;
    const int rank = checks.rank_of(full);
    checks.report(Kind::duplicate, {rank, rank}, {full, half},
                  fmt::format("rank {}: {} stands beside {}, which does {} already", rank, to_string(half),
                              to_string(full), letters(kind)));
  }
}

void report_missing(ScheduleChecks& checks, const Action& action, std::string_view expected) {
  const int rank = checks.rank_of(action);
  checks.report(Kind::missing, {rank}, {action},
                fmt::format("rank {}: {} is missing{}", rank, to_string(action), expected));
}

}  // namespace

void check_each_action(ScheduleChecks& checks) {
  std::int32_t position = 0;
  for (std::size_t rank = 0; rank < checks.schedule.actions.size(); ++rank) {
    for (const Action& action : checks.schedule.actions[rank]) {
      check_action(checks, static_cast<int>(rank), action, position++);
    }
  }
  for (int stage = 0; stage < stages(checks.schedule); ++stage) {
    for (int k = 0; k < checks.schedule.microbatches; ++k) check_one_backward(checks, stage, k);
  }
}

void check_completeness(ScheduleChecks& checks) {
  const auto missing = [&](ActionKind kind, int stage, int k) { return checks.index.find(kind, stage, k) == nowhere; };
  bool any_step = false;
  for (const std::int32_t step : checks.step_of_stage) any_step |= step != nowhere;
  for (int stage = 0; stage < stages(checks.schedule); ++stage) {
    for (int k = 0; k < checks.schedule.microbatches; ++k) {
      if (missing(ActionKind::forward, stage, k)) report_missing(checks, {ActionKind::forward, stage, k}, "");
      if (!missing(ActionKind::backward, stage, k)) continue;
      const bool no_input = missing(ActionKind::input_gradient, stage, k);
      const bool no_weight = missing(ActionKind::weight_gradient, stage, k);
      if (no_input && no_weight) {
        report_missing(checks, {ActionKind::backward, stage, k}, ", expected B or I and W");
      } else if (no_input) {
        report_missing(checks, {ActionKind::input_gradient, stage, k}, ", but its W is there");
      } else if (no_weight) {
        report_missing(checks, {ActionKind::weight_gradient, stage, k}, ", but its I is there");
      }
    }
    if (any_step && checks.step_of_stage[static_cast<std::size_t>(stage)] == nowhere) {
      report_missing(checks, {ActionKind::optimizer_step, stage, no_microbatch}, ", but other stages step");
    }
  }
  const bool first_tied = checks.tied_of_stage.front() != nowhere;
  const bool last_tied = checks.tied_of_stage.back() != nowhere;
  if (first_tied != last_tied) {
    const int stage = first_tied ? stages(checks.schedule) - 1 : 0;
    report_missing(checks, {ActionKind::reduce_tied, stage, no_microbatch}, ", the other rank waits for it");
  }
}

}  // namespace plumb
