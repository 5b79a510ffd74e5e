// How long ranks wait for each other.
#pragma once

#include <algorithm>
#include <optional>

#include "common/plan/plan.hpp"
#include "exec/run/runner.hpp"

namespace plumb::exec {

// The predicted time of all of a step's compute and of what it does not hide of its collectives, as if one rank did it:
// a peer may have that to do before it answers.
[[nodiscard]] Seconds serial_time(const Plan& plan);

// The most that an action is predicted to take in which a rank waits for no other; nothing of those in which it may.
[[nodiscard]] std::optional<Seconds> own_time(const Plan& plan, const Action& action);

// Advice about a deadline that has passed, behind what was waited for; and about one before the first step.
inline constexpr const char* longer_deadline = "--deadline SECONDS gives ranks longer";
inline constexpr const char* longer_start_deadline = "--start-deadline SECONDS gives ranks longer";

// The deadline of what needs a peer, from when a rank begins to wait.
[[nodiscard]] inline Seconds patience(const Plan& plan, const RunOptions& options) {
  return std::max(options.deadline_floor, serial_time(plan) * options.deadline_factor);
}

}  // namespace plumb::exec
