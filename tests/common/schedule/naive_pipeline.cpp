#include "tests/common/schedule/naive_pipeline.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace plumb {
namespace {

struct RankState {
  std::size_t next = 0;
  bool busy = false;
  int free_at = 0;
  int began_at = -1;
};

class NaivePipeline {
 public:
  NaivePipeline(const Schedule& schedule, const NaiveTimes& times) : schedule_(schedule), times_(times) {}

  NaiveResult run() {
    std::vector<RankState> ranks(schedule_.actions.size());
    int idle_ticks = 0;
    for (int now = 0; idle_ticks < 1000; ++now) {
      // Actions of zero ticks let others go on within the same tick, so sweep until nothing moves.
      bool moved = false;
      for (bool again = true; again;) {
        again = false;
        for (std::size_t r = 0; r < ranks.size(); ++r) again |= step(ranks[r], r, now);
        moved |= again;
      }
      const bool all_done = std::ranges::all_of(ranks, [&](const RankState& rank) {
        return !rank.busy && rank.next == schedule_.actions[static_cast<std::size_t>(&rank - ranks.data())].size();
      });
      if (all_done) return result_of(ranks);
      const bool any_busy = std::ranges::any_of(ranks, [](const RankState& rank) { return rank.busy; });
      idle_ticks = moved || any_busy ? 0 : idle_ticks + 1;
    }
    return {-1, -1};
  }

 private:
  NaiveResult result_of(const std::vector<RankState>& ranks) const {
    NaiveResult result;
    for (const RankState& rank : ranks) {
      result.makespan = std::max(result.makespan, rank.free_at);
      if (rank.began_at >= 0) result.longest_span = std::max(result.longest_span, rank.free_at - rank.began_at);
    }
    return result;
  }

  bool step(RankState& rank, std::size_t r, int now) {
    const auto& list = schedule_.actions[r];
    if (rank.busy) {
      if (rank.free_at > now) return false;
      rank.busy = false;
      ended_[list[rank.next]] = rank.free_at;
      ++rank.next;
      return true;
    }
    if (rank.next == list.size() || !may_start(list[rank.next], static_cast<int>(r), now)) return false;
    if (rank.began_at < 0) rank.began_at = now;
    rank.busy = true;
    rank.free_at = now + ticks(list[rank.next]);
    return true;
  }

  int ticks(const Action& action) const {
    const auto s = static_cast<std::size_t>(action.stage);
    switch (action.kind) {
      case ActionKind::backward:
        return times_.input_gradient[s] + times_.weight_gradient[s];
      case ActionKind::input_gradient:
        return times_.input_gradient[s];
      case ActionKind::weight_gradient:
        return times_.weight_gradient[s];
      default:
        return times_.forward[s];
    }
  }

  // True if `action` has ended and its result reached `rank` by now.
  bool is_there(const Action& action, int rank, int now) const {
    const auto found = ended_.find(action);
    if (found == ended_.end()) return false;
    const bool same = rank_of(schedule_, action.stage, action.microbatch) == rank;
    return found->second + (same ? 0 : times_.hop) <= now;
  }

  bool gradient_is_there(int stage, int microbatch, int rank, int now) const {
    return is_there({ActionKind::backward, stage, microbatch}, rank, now) ||
           is_there({ActionKind::input_gradient, stage, microbatch}, rank, now);
  }

  bool may_start(const Action& action, int rank, int now) const {
    const int s = action.stage;
    const int k = action.microbatch;
    const int last = static_cast<int>(schedule_.rank_of_stage.size()) - 1;
    switch (action.kind) {
      case ActionKind::forward:
        return s == 0 || is_there({ActionKind::forward, s - 1, k}, rank, now);
      case ActionKind::recompute:
        return is_there({ActionKind::forward, s, k}, rank, now);
      case ActionKind::weight_gradient:
        return is_there({ActionKind::input_gradient, s, k}, rank, now);
      default:
        return is_there({ActionKind::forward, s, k}, rank, now) &&
               (s == last || gradient_is_there(s + 1, k, rank, now));
    }
  }

  const Schedule& schedule_;
  const NaiveTimes& times_;
  std::map<Action, int> ended_;
};

}  // namespace

NaiveTimes even_ticks(int stages, int forward, int input_gradient, int weight_gradient, int hop) {
  const auto count = static_cast<std::size_t>(stages);
  return {.forward = std::vector<int>(count, forward),
          .input_gradient = std::vector<int>(count, input_gradient),
          .weight_gradient = std::vector<int>(count, weight_gradient),
          .hop = hop};
}

NaiveResult naive_run(const Schedule& schedule, const NaiveTimes& times) {
  return NaivePipeline(schedule, times).run();
}

}  // namespace plumb
