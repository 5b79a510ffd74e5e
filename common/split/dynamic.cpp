#include <algorithm>

#include "common/split/coupled.hpp"

namespace plumb {
namespace {

// One search, with the times of all segments at hand.
class DynamicSplit {
 public:
  DynamicSplit(const SplitProblem& problem, std::int64_t budget)
      : problem_(problem), chain_(problem), blocks_(chain_.blocks()), stages_(chain_.stages()) {
    sum_times();
    if (!problem.memory_per_rank) return;
    limit_memory();
    coupled_.emplace(chain_, CoupledLimits{.bytes = problem_.memory_per_rank->value}, budget);
  }

  std::optional<Split> run() {
    std::vector<double> candidates = times_;
    std::ranges::sort(candidates);
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    // The smallest time of the slowest stage for which there are cuts; the largest segment, the whole chain, bounds
    // nothing.
    if (!cuts_within(candidates.back(), false)) return std::nullopt;
    auto low = candidates.begin();
    auto high = candidates.end() - 1;
    while (low < high) {
      const auto middle = low + (high - low) / 2;
      if (cuts_within(*middle, false)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return split_from_cuts(*cuts_within(*high, true));
  }

 private:
  // Sums from left to right, as slowest_stage_time adds them: exact comparison needs the same rounding.
  void sum_times() {
    times_.assign(static_cast<std::size_t>(blocks_ * (blocks_ + 1) / 2), 0.0);
    for (int start = 0; start < blocks_; ++start) {
      double sum = 0;
      for (int end = start + 1; end <= blocks_; ++end) {
        sum += problem_.block_times[static_cast<std::size_t>(end) - 1].value;
        times_[time_index(start, end)] = sum;
      }
    }
  }
  std::size_t time_index(int start, int end) const {
    const int index = start * blocks_ - start * (start - 1) / 2 + (end - start - 1);
    return static_cast<std::size_t>(index);
  }

  void limit_memory() {
    for (int stage = 0; stage < stages_; ++stage) {
      fits_until_.push_back(farthest_ends(blocks_, [&](int start, int end) {
        return chain_.stage_bytes(stage, start, end) <= problem_.memory_per_rank->value;
      }));
    }
  }

  // Per stage and start: no stage slower than `limit`, none alone too large for its rank.
  StageWindows windows_within(double limit) const {
    std::vector<EndWindow> fast;
    const auto is_fast = [&](int start, int end) { return times_[time_index(start, end)] <= limit; };
    for (const int end : farthest_ends(blocks_, is_fast)) fast.push_back({static_cast<int>(fast.size()) + 1, end});
    StageWindows windows(static_cast<std::size_t>(stages_), fast);
    for (std::size_t stage = 0; stage < fits_until_.size(); ++stage) {
      for (std::size_t start = 0; start < fast.size(); ++start) {
        windows[stage][start].last = std::min(fast[start].last, fits_until_[stage][start]);
      }
    }
    return windows;
  }

  // Cuts with no stage slower than `limit`: those with the lexicographically largest counts, or just any.
  std::optional<std::vector<int>> cuts_within(double limit, bool largest) {
    const StageWindows windows = windows_within(limit);
    const auto window = [&](int stage, int start) {
      return windows[static_cast<std::size_t>(stage)][static_cast<std::size_t>(start)];
    };
    const CutTable table(blocks_, stages_, window);
    auto cuts = table.largest_cuts(window);
    if (!cuts || !problem_.memory_per_rank || ranks_fit(*cuts)) return cuts;
    cuts = coupled_->any(windows);
    if (cuts && largest) return coupled_->largest(windows, *cuts);
    return cuts;
  }

  bool ranks_fit(const std::vector<int>& cuts) const {
    for (int rank = 0; rank < chain_.ranks(); ++rank) {
      if (chain_.rank_bytes(rank, cuts) > problem_.memory_per_rank->value) return false;
    }
    return true;
  }

  const SplitProblem& problem_;
  WeighedChain chain_;
  int blocks_;
  int stages_;
  std::vector<double> times_;                 // of all segments, by time_index
  std::vector<std::vector<int>> fits_until_;  // per stage and start, alone on its rank
  std::optional<CoupledCuts> coupled_;        // with a memory limit
};

}  // namespace

std::optional<Split> dynamic_split_within(const SplitProblem& problem, std::int64_t budget) {
  require_sound(problem);
  return DynamicSplit(problem, budget).run();
}

std::optional<Split> dynamic_split(const SplitProblem& problem) {
  return dynamic_split_within(problem, most_steps_of_proof);
}

}  // namespace plumb
