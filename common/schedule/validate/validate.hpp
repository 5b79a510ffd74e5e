// Finds what is wrong with a schedule before anything runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

struct ScheduleProblem {
  enum class Kind : std::uint8_t {
    malformed,          // stage, microbatch or rank out of range
    misplaced,          // an action on a rank that does not hold its stage
    duplicate,          // twice the same action, or B beside I or W
    missing,            // F, B (or I and W) of a stage and microbatch, a receive, a send
    crossed,            // on one rank, before what it needs: B before F, W before I, SEND before its producer
    unmatched_message,  // a send without receive, half an eviction, or the reverse
    crossed_messages,   // per directed pair of ranks and direction, the n-th send is not the n-th receive
    deadlock,           // ranks wait for each other; `actions` is the cycle
    over_limit,         // more activations than are allowed; `actions` is the first that makes it so
  } kind;
  std::vector<int> ranks;  // of each action
  std::vector<Action> actions;
  std::string text;  // one sentence: rank, action, what was expected
};

// All problems, in a deterministic order; empty if the schedule is valid. Takes compute-only schedules, whose transfers
// are then implied, and lowered ones, whose transfers are checked.
[[nodiscard]] std::vector<ScheduleProblem> validate(const Schedule& schedule);

// "duplicate", "crossed messages": the kinds' own words.
[[nodiscard]] std::string_view name_of(ScheduleProblem::Kind kind);

// The ranks that hold more activations at once than `most`, counted as `peak_activations` does: in one rank's share of
// a microbatch. Each with its peak and the first action at which it holds too many. The schedule must be well formed.
[[nodiscard]] std::vector<ScheduleProblem> check_activations(const Schedule& schedule, double most);

// Throws InputError with the first problem and the number of others.
void require_valid(const Schedule& schedule);

}  // namespace plumb
