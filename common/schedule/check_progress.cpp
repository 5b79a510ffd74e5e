#include <fmt/format.h>

#include <algorithm>

#include "common/schedule/checks.hpp"

namespace plumb {
namespace {

// Lets every rank run its list until none can go on. What is missing, or wrongly ordered within a list, is reported by
// other checks and does not hold anyone up here: only ranks that wait for each other remain.
class ProgressCheck {
 public:
  explicit ProgressCheck(ScheduleChecks& checks)
      : checks_(checks), schedule_(checks.schedule), next_(checks.schedule.actions.size(), 0) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) moved |= advance(rank);
    }
    report_cycles();
  }

 private:
  struct Awaited {
    Action action;
    bool only_reached = false;  // a partner in a collective need not have finished it
  };

  const Action& head(std::size_t rank) const { return schedule_.actions[rank][static_cast<std::size_t>(next_[rank])]; }
  bool is_finished(std::size_t rank) const {
    return static_cast<std::size_t>(next_[rank]) == schedule_.actions[rank].size();
  }

  bool advance(std::size_t rank) {
    const std::int32_t before = next_[rank];
    while (!is_finished(rank) && !waits(head(rank))) ++next_[rank];
    return next_[rank] != before;
  }

  // What of another rank this action needs; false if nothing.
  bool awaited_by(const Action& action, Awaited& awaited) const {
    if (!in_range(schedule_, action)) return false;
    const int s = action.stage;
    const int k = action.microbatch;
    const int last = stages(schedule_) - 1;
    const auto crosses = [&](int boundary) { return crosses_ranks(schedule_, boundary); };
    switch (action.kind) {
      case ActionKind::receive_forward:
      case ActionKind::forward:
        if (s == 0 || !crosses(s - 1) || checks_.lowered == (action.kind == ActionKind::forward)) return false;
        awaited.action = {checks_.lowered ? ActionKind::send_forward : ActionKind::forward, s - 1, k};
        return true;
      case ActionKind::receive_backward:
      case ActionKind::backward:
      case ActionKind::input_gradient:
        if (s == last || !crosses(s) || checks_.lowered == (action.kind != ActionKind::receive_backward)) return false;
        awaited.action =
            checks_.lowered ? Action{ActionKind::send_backward, s + 1, k} : checks_.gradient_action(s + 1, k);
        return true;
      case ActionKind::reduce_tied:
        awaited = {{ActionKind::reduce_tied, s == 0 ? last : 0, no_microbatch}, true};
        return checks_.rank_of(awaited.action) != checks_.rank_of(action);
      default:
        return false;
    }
  }

  bool waits(const Action& action) const {
    Awaited awaited;
    if (!awaited_by(action, awaited)) return false;
    const std::int32_t position =
        awaited.only_reached
            ? checks_.on_own_rank(awaited.action, checks_.tied_of_stage[static_cast<std::size_t>(awaited.action.stage)])
            : checks_.placed(awaited.action);
    if (position == nowhere) return false;
    const auto rank = static_cast<std::size_t>(checks_.rank_of(awaited.action));
    const std::int32_t done = checks_.index.first_of_rank[rank] + next_[rank];
    return awaited.only_reached ? done < position : done <= position;
  }

  // Every stuck rank waits for exactly one other stuck rank, so walking on from any of them ends in a cycle.
  void report_cycles() {
    std::vector<std::size_t> visited_from(next_.size(), next_.size());
    for (std::size_t first = 0; first < next_.size(); ++first) {
      std::size_t rank = first;
      while (!is_finished(rank) && visited_from[rank] == next_.size()) {
        visited_from[rank] = first;
        rank = awaited_rank(rank);
      }
      if (!is_finished(rank) && visited_from[rank] == first) report_cycle(rank);
    }
  }

  std::size_t awaited_rank(std::size_t rank) const {
    Awaited awaited;
    if (!awaited_by(head(rank), awaited)) return rank;
    return static_cast<std::size_t>(checks_.rank_of(awaited.action));
  }

  void report_cycle(std::size_t start) {
    std::vector<int> ranks;
    std::vector<Action> actions;
    std::string text = "deadlock: ";
    std::size_t rank = start;
    do {
      Awaited awaited;
      if (!awaited_by(head(rank), awaited)) return;
      const std::size_t other = awaited_rank(rank);
      text += fmt::format("{}rank {} waits at {} for {} of rank {}", actions.empty() ? "" : ", ", rank,
                          to_string(head(rank)), to_string(awaited.action), other);
      ranks.push_back(static_cast<int>(rank));
      actions.push_back(head(rank));
      rank = other;
    } while (rank != start);
    checks_.report(ScheduleProblem::Kind::deadlock, std::move(ranks), std::move(actions), std::move(text));
  }

  ScheduleChecks& checks_;
  const Schedule& schedule_;
  std::vector<std::int32_t> next_;  // per rank, its first action that is not done
};

}  // namespace

void check_progress(ScheduleChecks& checks) { ProgressCheck(checks).run(); }

}  // namespace plumb
