#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "common/schedule/reductions.hpp"
#include "common/schedule/validate/checks.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

// Lets every rank run its list until none can go on. What is missing, or wrongly ordered within a list, is reported by
// other checks and does not hold anyone up here: only ranks that wait for each other remain.
class ProgressCheck {
 public:
  explicit ProgressCheck(ScheduleChecks& checks)
      : checks_(checks),
        schedule_(checks.schedule),
        pair_begins_(pair_begins(checks.schedule, checks.index)),
        next_(checks.schedule.actions.size(), 0),
        broadcasts_{joined_in_order(checks.schedule, 0, JoinStream::broadcasts)},
        sums_{joined_in_order(checks.schedule, 0, JoinStream::sums)} {}

  void run() {
    // Whoever gets on wakes those that wait for it: sweeps over all ranks would take as many as there are ranks.
    std::vector<std::vector<std::size_t>> waiting(next_.size());
    std::vector<std::size_t> awake(next_.size());
    std::iota(awake.rbegin(), awake.rend(), std::size_t{0});
    while (!awake.empty()) {
      const std::size_t rank = awake.back();
      awake.pop_back();
      const std::int32_t before = next_[rank];
      Awaited awaited;
      while (!is_finished(rank) && !awaited_by_head(rank, awaited)) ++next_[rank];
      if (!is_finished(rank)) waiting[static_cast<std::size_t>(awaited.rank)].push_back(rank);
      if (next_[rank] == before) continue;
      awake.insert(awake.end(), waiting[rank].begin(), waiting[rank].end());
      waiting[rank].clear();
    }
    report_cycles();
  }

 private:
  struct Awaited {
    Action action;
    int rank = 0;
    std::int32_t position = nowhere;  // when the rank is past it, it is done
    bool only_reached = false;        // a partner in a collective need not have finished it
  };

  const Action& head(std::size_t rank) const { return schedule_.actions[rank][static_cast<std::size_t>(next_[rank])]; }
  bool is_finished(std::size_t rank) const {
    return static_cast<std::size_t>(next_[rank]) == schedule_.actions[rank].size();
  }

  std::int32_t head_position(std::size_t rank) const { return checks_.index.first_of_rank[rank] + next_[rank]; }

  // What of another rank this action needs; false if nothing.
  bool awaited_by(int rank, const Action& action, Awaited& awaited) {
    if (!in_range(schedule_, action)) return false;
    if (awaited_of_parts(rank, action, awaited)) return true;
    if (is_part(schedule_, action.stage)) return false;
    const int s = action.stage;
    const int k = action.microbatch;
    const int last = stages(schedule_) - 1;
    const auto crosses = [&](int boundary) { return crosses_ranks(schedule_, boundary, k); };
    switch (action.kind) {
      case ActionKind::receive_forward:
      case ActionKind::forward:
        if (s == 0 || !crosses(s - 1) || checks_.lowered == (action.kind == ActionKind::forward)) return false;
        return await_producer({checks_.lowered ? ActionKind::send_forward : ActionKind::forward, s - 1, k}, awaited);
      case ActionKind::receive_backward:
      case ActionKind::backward:
      case ActionKind::input_gradient:
        if (s < last && crosses(s) && checks_.lowered == (action.kind == ActionKind::receive_backward)) {
          return await_producer(
              checks_.lowered ? Action{ActionKind::send_backward, s + 1, k} : checks_.gradient_action(s + 1, k),
              awaited);
        }
        return false;
      case ActionKind::evict:
      case ActionKind::load:
        return await_other_half(rank, action, awaited);
      case ActionKind::reduce_tied:
        return await_partner(rank, other_half(action, last + 1), 0, awaited);
      case ActionKind::reduce_gradient: {
        const int replica = checks_.replica_on(rank, s);
        return replica >= 0 && replicas(schedule_) == 2 && await_partner(rank, action, 1 - replica, awaited);
      }
      default:
        return false;
    }
  }

  // The first that is not done of what a part of the vocabulary, or the stage beside the parts, needs of other ranks.
  // What joins the parts waits for all that its stream has before it, by the first rank's list: all have one order.
  bool awaited_of_parts(int rank, const Action& action, Awaited& awaited) {
    const std::optional<Action> joined = joined_for(schedule_, action);
    if (!joined) return false;
    Stream& stream = stream_of(*joined) == JoinStream::broadcasts ? broadcasts_ : sums_;
    while (!stream.ended.contains(*joined) && stream.next < stream.joined.size()) {
      const Action& next = stream.joined[stream.next];
      if (is_any_pending(next, next == *joined ? rank : -1, awaited)) return true;
      stream.ended.insert(next);
      ++stream.next;
    }
    return !stream.ended.contains(*joined) && is_any_pending(*joined, rank, awaited);
  }

  // Whether something of what is joined is to be made; what rank `but` makes counts as made.
  bool is_any_pending(const Action& joined, int but, Awaited& awaited) const {
    return std::ranges::any_of(makers_of(schedule_, joined), [&](const Action& maker) {
      const Action made = checks_.maker_here(maker);
      awaited = {made, checks_.rank_of(made), checks_.placed(made), false};
      return awaited.rank != but && is_pending(awaited);
    });
  }

  bool await_producer(const Action& producer, Awaited& awaited) const {
    awaited = {producer, checks_.rank_of(producer), checks_.placed(producer), false};
    // A pair hands on what both make when both have ended.
    if (awaited.position != nowhere && pair_begins_[static_cast<std::size_t>(awaited.position)]) ++awaited.position;
    return true;
  }

  // The receiving half (EVICT on the partner, LOAD on the stage's own rank) waits until the other one has sent.
  bool await_other_half(int rank, const Action& action, Awaited& awaited) const {
    const bool own = checks_.rank_of(action) == rank;
    if (own == (action.kind == ActionKind::evict)) return false;
    const std::int32_t sent = own ? checks_.index.find_partner(action) : checks_.placed(action);
    if (sent == nowhere) return false;
    awaited = {action, checks_.index.rank_at(sent), sent, false};
    return true;
  }

  bool await_partner(int rank, const Action& action, int replica, Awaited& awaited) const {
    awaited = {action, rank_in_replica(schedule_, replica, action.stage),
               checks_.end_position(action.kind, replica, action.stage), true};
    return awaited.rank != rank;
  }

  bool is_pending(const Awaited& awaited) const {
    if (awaited.position == nowhere) return false;
    const std::int32_t done = head_position(static_cast<std::size_t>(awaited.rank));
    return awaited.only_reached ? done < awaited.position : done <= awaited.position;
  }

  // What the head of a rank's list waits for; false if it can go on. A pair starts when both have their inputs.
  bool awaited_by_head(std::size_t rank, Awaited& awaited) {
    if (awaited_by(static_cast<int>(rank), head(rank), awaited) && is_pending(awaited)) return true;
    if (!pair_begins_[static_cast<std::size_t>(head_position(rank))]) return false;
    const Action& second = schedule_.actions[rank][static_cast<std::size_t>(next_[rank]) + 1];
    return awaited_by(static_cast<int>(rank), second, awaited) && is_pending(awaited);
  }

  // Every stuck rank waits for exactly one stuck rank, itself where it is to make something later, so walking on from
  // any of them ends in a cycle.
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

  std::size_t awaited_rank(std::size_t rank) {
    Awaited awaited;
    if (!awaited_by_head(rank, awaited)) return rank;
    return static_cast<std::size_t>(awaited.rank);
  }

  void report_cycle(std::size_t start) {
    std::vector<int> ranks;
    std::vector<Action> actions;
    std::string text = "deadlock: ";
    std::size_t rank = start;
    do {
      Awaited awaited;
      if (!awaited_by_head(rank, awaited)) return;
      const std::size_t other = awaited_rank(rank);
      text += fmt::format("{}rank {} waits at {} for {} of rank {}", actions.empty() ? "" : ", ", rank,
                          to_string(head(rank)), to_string(awaited.action), other);
      ranks.push_back(static_cast<int>(rank));
      actions.push_back(head(rank));
      rank = other;
    } while (rank != start);
    checks_.report(ScheduleProblem::Kind::deadlock, std::move(ranks), std::move(actions), std::move(text));
  }

  // What joins the parts of a vocabulary, one behind the other; empty where there are none, or in lists without it.
  struct Stream {
    std::vector<Action> joined;
    std::size_t next = 0;
    std::set<Action> ended = {};
  };

  ScheduleChecks& checks_;
  const Schedule& schedule_;
  const std::vector<bool> pair_begins_;
  std::vector<std::int32_t> next_;  // per rank, its first action that is not done
  Stream broadcasts_;
  Stream sums_;
};

}  // namespace

void check_progress(ScheduleChecks& checks) { ProgressCheck(checks).run(); }

}  // namespace plumb
