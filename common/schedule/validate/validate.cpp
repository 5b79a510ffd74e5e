#include "common/schedule/validate/validate.hpp"

#include <fmt/format.h>

#include "common/base/error.hpp"
#include "common/schedule/validate/checks.hpp"

namespace plumb {
namespace {

std::vector<ScheduleProblem> all_problems(const Schedule& schedule) {
  ScheduleChecks checks(schedule);
  check_each_action(checks);
  check_completeness(checks);
  check_order(checks);
  check_messages(checks);
  check_evictions(checks);
  check_progress(checks);
  return std::move(checks.problems);
}

}  // namespace

std::vector<ScheduleProblem> validate(const Schedule& schedule) {
  try {
    require_well_formed(schedule);
  } catch (const InputError& error) {
    return {{ScheduleProblem::Kind::malformed, {}, {}, error.problem()}};
  }
  std::vector<ScheduleProblem> problems = all_problems(schedule);
  if (schedule.vocabulary_barriers == 0 || !problems.empty() || is_lowered(schedule)) return problems;
  // What joins the parts is implied, too, but all ranks must do it in one order, which follows from their lists.
  return all_problems(lower(schedule, {.optimizer = false}));
}

std::string_view name_of(ScheduleProblem::Kind kind) {
  switch (kind) {
    case ScheduleProblem::Kind::malformed:
      return "malformed";
    case ScheduleProblem::Kind::misplaced:
      return "misplaced";
    case ScheduleProblem::Kind::duplicate:
      return "duplicate";
    case ScheduleProblem::Kind::missing:
      return "missing";
    case ScheduleProblem::Kind::crossed:
      return "crossed";
    case ScheduleProblem::Kind::unmatched_message:
      return "unmatched message";
    case ScheduleProblem::Kind::crossed_messages:
      return "crossed messages";
    case ScheduleProblem::Kind::deadlock:
      return "deadlock";
    case ScheduleProblem::Kind::over_limit:
      return "over limit";
  }
  return "";
}

void require_valid(const Schedule& schedule) {
  const std::vector<ScheduleProblem> problems = validate(schedule);
  if (problems.empty()) return;
  const std::size_t others = problems.size() - 1;
  throw InputError("schedule " + schedule.name, problems.front().text,
                   others == 0 ? "" : fmt::format("{} more problem{} behind it", others, others == 1 ? "" : "s"));
}

}  // namespace plumb
