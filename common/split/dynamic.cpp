#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "common/split/coupled.hpp"

namespace plumb {
namespace {

void require_sound(const SplitProblem& problem) {
  const std::size_t blocks = problem.block_times.size();
  const std::size_t stages = problem.rank_of_stage.size();
  if (blocks < 2 || blocks > most_blocks || problem.block_fixed_bytes.size() != blocks ||
      problem.block_kept_bytes.size() != blocks || problem.kept_microbatches.size() != stages) {
    throw InputError("split", "times and bytes of " + std::to_string(blocks) + " blocks on " + std::to_string(stages) +
                                  " stages do not fit together");
  }
  require_stages(static_cast<int>(blocks) - 2, static_cast<int>(stages));
  const auto bad_time = [](Seconds time) { return !std::isfinite(time.value) || time.value < 0; };
  const auto bad_bytes = [](Bytes bytes) { return bytes.value < 0; };
  const auto bad_count = [](double count) { return !std::isfinite(count) || count < 0; };
  if (std::ranges::any_of(problem.block_times, bad_time) || std::ranges::any_of(problem.block_fixed_bytes, bad_bytes) ||
      std::ranges::any_of(problem.block_kept_bytes, bad_bytes) ||
      std::ranges::any_of(problem.kept_microbatches, bad_count) ||
      std::ranges::any_of(problem.rank_of_stage, [](int rank) { return rank < 0; })) {
    throw InputError("split", "a negative or infinite time or size of a block");
  }
}

std::int64_t block_memory(const SplitProblem& problem, std::size_t stage, std::size_t block) {
  const double kept = problem.kept_microbatches[stage] * static_cast<double>(problem.block_kept_bytes[block].value);
  return problem.block_fixed_bytes[block].value + static_cast<std::int64_t>(std::ceil(kept));
}

// One search: bottleneck and memory of all segments at hand.
class DynamicSplit {
 public:
  explicit DynamicSplit(const SplitProblem& problem)
      : problem_(problem),
        blocks_(static_cast<int>(problem.block_times.size())),
        stages_(static_cast<int>(problem.rank_of_stage.size())),
        ranks_(*std::ranges::max_element(problem.rank_of_stage) + 1) {
    sum_times();
    if (!problem.memory_per_rank) return;
    sum_memory();
    coupled_.emplace(memory_, problem_.rank_of_stage, ranks_, problem_.memory_per_rank->value);
  }

  std::optional<Split> run() {
    std::vector<double> candidates = times_;
    std::ranges::sort(candidates);
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    // The smallest bottleneck for which there are cuts; the largest segment, the whole chain, bounds nothing.
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
  // Sums from left to right, as `bottleneck` adds them: exact comparison needs the same rounding.
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

  void sum_memory() {
    for (int stage = 0; stage < stages_; ++stage) {
      auto& before = memory_.before.emplace_back(1, 0);
      for (int block = 0; block < blocks_; ++block) {
        before.push_back(before.back() +
                         block_memory(problem_, static_cast<std::size_t>(stage), static_cast<std::size_t>(block)));
      }
      auto& until = fits_until_.emplace_back();
      int end = 0;
      for (int start = 0; start < blocks_; ++start) {
        while (end < blocks_ && memory_.of(stage, start, end + 1) <= problem_.memory_per_rank->value) ++end;
        until.push_back(end);
      }
    }
  }

  // Per stage and start: no stage slower than `limit`, none alone too large for its rank.
  StageWindows windows_within(double limit) const {
    std::vector<EndWindow> fast;
    int end = 0;
    for (int start = 0; start < blocks_; ++start) {
      end = std::max(end, start);
      while (end < blocks_ && times_[time_index(start, end + 1)] <= limit) ++end;
      fast.push_back({start + 1, end});
    }
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
    std::vector<std::int64_t> used(static_cast<std::size_t>(ranks_), 0);
    int start = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const int end = cuts[static_cast<std::size_t>(stage)];
      used[static_cast<std::size_t>(problem_.rank_of_stage[static_cast<std::size_t>(stage)])] +=
          memory_.of(stage, start, end);
      start = end;
    }
    return std::ranges::all_of(used, [&](std::int64_t bytes) { return bytes <= problem_.memory_per_rank->value; });
  }

  const SplitProblem& problem_;
  int blocks_;
  int stages_;
  int ranks_;
  std::vector<double> times_;  // of all segments, by time_index
  StageMemory memory_;
  std::vector<std::vector<int>> fits_until_;  // per stage and start, alone on its rank
  std::optional<CoupledCuts> coupled_;        // with a memory limit
};

void require_fitting(const SplitProblem& problem, const Split& split) {
  std::int64_t layers = 0;
  for (const int count : split.layers) layers += count;
  if (split.layers.size() != problem.rank_of_stage.size() ||
      layers + 2 != static_cast<std::int64_t>(problem.block_times.size())) {
    throw InputError("split", describe(split) + " is not a split of " + std::to_string(problem.block_times.size() - 2) +
                                  " layers into " + std::to_string(problem.rank_of_stage.size()) + " stages");
  }
}

}  // namespace

std::optional<Split> dynamic_split(const SplitProblem& problem) {
  require_sound(problem);
  return DynamicSplit(problem).run();
}

Seconds bottleneck(const SplitProblem& problem, const Split& split) {
  require_fitting(problem, split);
  Seconds slowest;
  for (int stage = 0; stage < static_cast<int>(split.layers.size()); ++stage) {
    const BlockRange range = blocks_of_stage(split, stage);
    Seconds sum;
    for (int block = range.first; block < range.last; ++block) {
      sum += problem.block_times[static_cast<std::size_t>(block)];
    }
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

std::vector<Bytes> rank_memory(const SplitProblem& problem, const Split& split) {
  require_sound(problem);
  require_fitting(problem, split);
  std::vector<Bytes> memory(static_cast<std::size_t>(*std::ranges::max_element(problem.rank_of_stage)) + 1);
  for (int stage = 0; stage < static_cast<int>(split.layers.size()); ++stage) {
    const BlockRange range = blocks_of_stage(split, stage);
    for (int block = range.first; block < range.last; ++block) {
      memory[static_cast<std::size_t>(problem.rank_of_stage[static_cast<std::size_t>(stage)])].value +=
          block_memory(problem, static_cast<std::size_t>(stage), static_cast<std::size_t>(block));
    }
  }
  return memory;
}

}  // namespace plumb
