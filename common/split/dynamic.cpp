#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/error.hpp"
#include "common/split/chain.hpp"

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
    sum_memory();
  }

  std::optional<Split> run() {
    std::vector<double> candidates = times_;
    std::ranges::sort(candidates);
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    // The smallest bottleneck for which there are cuts; the largest segment, the whole chain, bounds nothing.
    if (!cuts_within(candidates.back())) return std::nullopt;
    auto low = candidates.begin();
    auto high = candidates.end() - 1;
    while (low < high) {
      const auto middle = low + (high - low) / 2;
      if (cuts_within(*middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return split_from_cuts(*cuts_within(*high));
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
    return static_cast<std::size_t>(start * blocks_ - start * (start - 1) / 2 + (end - start - 1));
  }

  void sum_memory() {
    if (!problem_.memory_per_rank) return;
    memory_before_.resize(static_cast<std::size_t>(stages_));
    fits_until_.resize(static_cast<std::size_t>(stages_));
    for (int stage = 0; stage < stages_; ++stage) {
      auto& before = memory_before_[static_cast<std::size_t>(stage)];
      before.push_back(0);
      for (int block = 0; block < blocks_; ++block) {
        before.push_back(before.back() +
                         block_memory(problem_, static_cast<std::size_t>(stage), static_cast<std::size_t>(block)));
      }
      auto& until = fits_until_[static_cast<std::size_t>(stage)];
      int end = 0;
      for (int start = 0; start < blocks_; ++start) {
        while (end < blocks_ && memory(stage, start, end + 1) <= problem_.memory_per_rank->value) ++end;
        until.push_back(end);
      }
    }
  }
  std::int64_t memory(int stage, int start, int end) const {
    const auto& before = memory_before_[static_cast<std::size_t>(stage)];
    return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(start)];
  }

  // The cuts with the lexicographically largest counts, no stage slower than `limit`.
  std::optional<std::vector<int>> cuts_within(double limit) {
    std::vector<int> fast_until;
    int end = 0;
    for (int start = 0; start < blocks_; ++start) {
      end = std::max(end, start);
      while (end < blocks_ && times_[time_index(start, end + 1)] <= limit) ++end;
      fast_until.push_back(end);
    }
    const auto window = [&](int stage, int start) {
      const int fast = fast_until[static_cast<std::size_t>(start)];
      if (!problem_.memory_per_rank) return EndWindow{start + 1, fast};
      return EndWindow{start + 1,
                       std::min(fast, fits_until_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(start)])};
    };
    const CutTable table(blocks_, stages_, window);
    auto cuts = table.largest_cuts(window);
    if (!cuts || !problem_.memory_per_rank || ranks_fit(*cuts)) return cuts;
    return coupled_cuts(table, window);
  }

  bool ranks_fit(const std::vector<int>& cuts) const {
    std::vector<std::int64_t> used(static_cast<std::size_t>(ranks_), 0);
    int start = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const int end = cuts[static_cast<std::size_t>(stage)];
      used[rank_of(stage)] += memory(stage, start, end);
      start = end;
    }
    return std::ranges::all_of(used, [&](std::int64_t bytes) { return bytes <= problem_.memory_per_rank->value; });
  }
  std::size_t rank_of(int stage) const {
    return static_cast<std::size_t>(problem_.rank_of_stage[static_cast<std::size_t>(stage)]);
  }

  // Depth first, longest stages first, so that the first complete cuts are the lexicographically largest.
  template <class WindowOf>
  std::optional<std::vector<int>> coupled_cuts(const CutTable& table, const WindowOf& window) {
    failed_.assign(static_cast<std::size_t>(stages_) * static_cast<std::size_t>(blocks_), {});
    used_.assign(static_cast<std::size_t>(ranks_), 0);
    cuts_.clear();
    if (extend(0, 0, table, window)) return cuts_;
    return std::nullopt;
  }

  template <class WindowOf>
  bool extend(int stage, int start, const CutTable& table, const WindowOf& window) {
    if (stage == stages_) return true;
    auto& failed =
        failed_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(blocks_) + static_cast<std::size_t>(start)];
    const std::vector<std::int64_t> open = used_by_open_ranks(stage);
    if (std::ranges::any_of(failed, [&](const auto& other) { return no_less(open, other); }) ||
        !could_fit(stage, start)) {
      return false;
    }
    count_visit();
    std::int64_t& used = used_[rank_of(stage)];
    const EndWindow ends = window(stage, start);
    for (int end = ends.last; end >= ends.first; --end) {
      if (!table.can(stage + 1, end)) continue;
      const std::int64_t bytes = memory(stage, start, end);
      if (used + bytes > problem_.memory_per_rank->value) continue;
      used += bytes;
      cuts_.push_back(end);
      if (extend(stage + 1, end, table, window)) return true;
      cuts_.pop_back();
      used -= bytes;
    }
    std::erase_if(failed, [&](const auto& other) { return no_less(other, open); });
    failed.push_back(open);
    return false;
  }

  // What the ranks that have a stage to come hold already: all that matters for the rest.
  std::vector<std::int64_t> used_by_open_ranks(int stage) const {
    std::vector<char> is_open(static_cast<std::size_t>(ranks_), 0);
    for (int later = stage; later < stages_; ++later) is_open[rank_of(later)] = 1;
    std::vector<std::int64_t> open;
    for (std::size_t rank = 0; rank < is_open.size(); ++rank) {
      if (is_open[rank] != 0) open.push_back(used_[rank]);
    }
    return open;
  }
  static bool no_less(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
  }

  // A bound: each remaining block weighs at least what it weighs on the lightest stage to come.
  bool could_fit(int stage, int start) const {
    std::int64_t free = 0;
    std::vector<char> counted(static_cast<std::size_t>(ranks_), 0);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int later = stage; later < stages_; ++later) {
      least = std::min(least, memory(later, start, blocks_));
      if (counted[rank_of(later)]++ == 0) free += problem_.memory_per_rank->value - used_[rank_of(later)];
    }
    return least <= free;
  }

  void count_visit() {
    constexpr std::int64_t most_visits = 3'000'000;  // some seconds
    if (++visits_ <= most_visits) return;
    throw InputError("split",
                     "the dynamic split of " + std::to_string(blocks_ - 2) + " layers on " + std::to_string(stages_) +
                         " stages is too large to prove under this memory limit",
                     "take fewer chunks, or give the split as a list");
  }

  const SplitProblem& problem_;
  int blocks_;
  int stages_;
  int ranks_;
  std::vector<double> times_;                                   // of all segments, by time_index
  std::vector<std::vector<std::int64_t>> memory_before_;        // per stage, of the blocks before each
  std::vector<std::vector<int>> fits_until_;                    // per stage and start, alone on its rank
  std::vector<std::vector<std::vector<std::int64_t>>> failed_;  // per stage and start: Pareto set of rank memories
  std::vector<std::int64_t> used_;                              // per rank
  std::vector<int> cuts_;
  std::int64_t visits_ = 0;
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
