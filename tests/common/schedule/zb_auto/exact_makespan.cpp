#include "tests/common/schedule/zb_auto/exact_makespan.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace plumb {
namespace {

constexpr int unknown = 1 << 28;

// Goes through all schedules in which every action starts as early as its rank and its inputs allow, action by action
// in the order of their starts.
class BranchAndBound {
 public:
  BranchAndBound(const AutoProblem& problem, int makespan, long nodes)
      : problem_(problem), makespan_(makespan), nodes_(nodes), stages_(static_cast<int>(problem.stages.size())) {
    const auto ranks = static_cast<std::size_t>(problem.ranks);
    free_at_.assign(ranks, 0);
    left_.assign(ranks, 0);
    room_.assign(ranks, std::int64_t{1} << 60);
    for (std::size_t r = 0; r < problem.limit.size(); ++r) room_[r] = problem.limit[r].value;
    done_.assign(problem.stages.size(), {});
    const std::vector<int> ends(static_cast<std::size_t>(problem.microbatches), unknown);
    ends_.assign(problem.stages.size(), {ends, ends, ends});
    for (int s = 0; s < stages_; ++s) {
      for (int part = 0; part < 3; ++part) left_[rank(s)] += problem.microbatches * ticks(s, part);
    }
  }

  [[nodiscard]] std::optional<bool> run() {
    const bool found = search(0, 3 * stages_ * problem_.microbatches);
    if (found) return true;
    if (nodes_ <= 0) return std::nullopt;
    return false;
  }

 private:
  [[nodiscard]] std::size_t rank(int s) const {
    return static_cast<std::size_t>(problem_.rank_of_stage[static_cast<std::size_t>(s)]);
  }
  [[nodiscard]] int ticks(int s, int part) const {
    const StageLoad& load = problem_.stages[static_cast<std::size_t>(s)];
    const std::array times{load.forward, load.input_gradient, load.weight_gradient};
    return static_cast<int>(times[static_cast<std::size_t>(part)].value);
  }
  [[nodiscard]] std::int64_t change(int s, int part) const {
    const StageLoad& load = problem_.stages[static_cast<std::size_t>(s)];
    return std::array{load.kept, load.kept_for_weight - load.kept,
                      -load.kept_for_weight}[static_cast<std::size_t>(part)]
        .value;
  }
  [[nodiscard]] int hop(int from, int to) const {
    const bool same = rank(from) == rank(to);
    return same || problem_.hop.empty()
               ? 0
               : static_cast<int>(problem_.hop[static_cast<std::size_t>(std::min(from, to))].value);
  }
  int& end(int s, int part, int k) {
    return ends_[static_cast<std::size_t>(s)][static_cast<std::size_t>(part)][static_cast<std::size_t>(k)];
  }
  int& done(int s, int part) { return done_[static_cast<std::size_t>(s)][static_cast<std::size_t>(part)]; }

  // When the next action of this kind could start; `unknown` if not yet.
  int start_of(int s, int part) {
    const int k = done(s, part);
    if (k == problem_.microbatches || change(s, part) > room_[rank(s)]) return unknown;
    int input = 0;
    if (part == 0 && s > 0) input = end(s - 1, 0, k) + hop(s - 1, s);
    if (part == 1) input = s + 1 < stages_ ? end(s + 1, 1, k) + hop(s, s + 1) : end(s, 0, k);
    if (part == 2) input = end(s, 1, k);
    return input >= unknown ? unknown : std::max(input, free_at_[rank(s)]);
  }

  // What must follow the end of this action before the step ends.
  [[nodiscard]] int tail(int s, int part) const {
    int time = 0;
    if (part == 2) return 0;
    if (part == 0) {
      for (int t = s + 1; t < stages_; ++t) time += hop(t - 1, t) + ticks(t, 0);
      return time + ticks(stages_ - 1, 1) + tail(stages_ - 1, 1);
    }
    int longest = ticks(s, 2);
    for (int t = s - 1; t >= 0; --t) {
      time += hop(t, t + 1) + ticks(t, 1);
      longest = std::max(longest, time + ticks(t, 2));
    }
    return longest;
  }

  bool seen(int last_start) {
    std::vector<int> state = free_at_;
    state.push_back(last_start);
    for (int s = 0; s < stages_; ++s) {
      for (int part = 0; part < 3; ++part) {
        state.push_back(done(s, part));
        for (int k = 0; k < done(s, part); ++k) {
          const int follower = part == 0 ? (s + 1 < stages_ ? done(s + 1, 0) : done(s, 1))
                                         : (s > 0 ? std::min(done(s - 1, 1), done(s, 2)) : done(s, 2));
          if (part < 2 && k >= follower) state.push_back(end(s, part, k));
        }
      }
    }
    return !seen_.insert(std::move(state)).second;
  }

  bool search(int last_start, int left) {
    if (left == 0) return true;
    if (--nodes_ <= 0) return false;
    for (std::size_t r = 0; r < free_at_.size(); ++r) {
      if (std::max(free_at_[r], left_[r] > 0 ? last_start : 0) + left_[r] >= makespan_) return false;
    }
    if (seen(last_start)) return false;
    for (int part = 1; part <= 3; ++part) {
      for (int s = 0; s < stages_; ++s) {
        if (take(s, part % 3, last_start, left)) return true;
      }
    }
    return false;
  }

  bool take(int s, int part, int last_start, int left) {
    const int start = start_of(s, part);
    if (start == unknown || start < last_start || start + ticks(s, part) + tail(s, part) >= makespan_) return false;
    const std::size_t r = rank(s);
    const int before = free_at_[r];
    const int k = done(s, part)++;
    end(s, part, k) = free_at_[r] = start + ticks(s, part);
    left_[r] -= ticks(s, part);
    room_[r] -= change(s, part);
    const bool found = search(start, left - 1);
    room_[r] += change(s, part);
    left_[r] += ticks(s, part);
    free_at_[r] = before;
    end(s, part, k) = unknown;
    --done(s, part);
    return found;
  }

  const AutoProblem& problem_;
  int makespan_;
  long nodes_;
  int stages_;
  std::vector<int> free_at_;        // per rank
  std::vector<int> left_;           // per rank, work
  std::vector<std::int64_t> room_;  // per rank, bytes
  std::vector<std::array<int, 3>> done_;
  std::vector<std::array<std::vector<int>, 3>> ends_;
  std::set<std::vector<int>> seen_;
};

}  // namespace

std::optional<bool> can_end_before(const AutoProblem& problem, int makespan, long nodes) {
  return BranchAndBound(problem, makespan, nodes).run();
}

}  // namespace plumb
