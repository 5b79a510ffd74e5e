#include <algorithm>
#include <memory>
#include <span>

#include "common/split/chain.hpp"
#include "common/split/coupled.hpp"
#include "common/split/equal_layers.hpp"

namespace plumb {
namespace {

// One search, with the times of all segments at hand.
class DynamicSplit {
 public:
  DynamicSplit(const WeighedChain& chain, std::int64_t budget)
      : problem_(chain.problem()), chain_(chain), blocks_(chain.blocks()), stages_(chain.stages()), budget_(budget) {
    const auto layer_times = std::span(problem_.block_times).subspan(1, problem_.block_times.size() - 2);
    const bool alike = problem_.memory_per_rank && chain_.most_stages_of_a_rank() > 1 && EqualLayers::are(chain_) &&
                       std::ranges::count(layer_times, layer_times.front()) == std::ssize(layer_times);
    if (alike) alike_.emplace(chain_, CoupledLimits{.bytes = problem_.memory_per_rank->value});
  }

  std::optional<Split> run() {
    if (is_too_large() || some_stage_holds_nothing()) return std::nullopt;
    sum_times();
    // The smallest time of the slowest stage for which there are cuts; the whole chain, the largest run, bounds
    // nothing.
    const double whole = times_[time_index(0, blocks_)];
    if (!cuts_within(whole, false)) return std::nullopt;
    const std::vector<double> candidates = candidates_up_to(whole);
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
  // Whether all blocks need more than all ranks have, wherever they stand: mostly that is why nothing fits.
  [[nodiscard]] bool is_too_large() const {
    if (!problem_.memory_per_rank) return false;
    std::int64_t room = 0;
    for (int rank = 0; rank < chain_.ranks(); ++rank) {
      if (!chain_.stages_of(rank).empty()) room += problem_.memory_per_rank->value - chain_.reserve(rank);
    }
    const bool alone =
        chain_.most_stages_of_a_rank() == 1;  // else a rank may hold most of each stage at another moment
    const std::int64_t held = alone ? chain_.least_held() : 0;
    return chain_.fixed_bytes(0, blocks_) + held * chain_.kept_bytes(0, blocks_) > room;
  }

  // Whether a stage is too large alone with any one block that it could have.
  [[nodiscard]] bool some_stage_holds_nothing() const {
    if (!problem_.memory_per_rank) return false;
    for (int stage = 0; stage < stages_; ++stage) {
      const bool ends = stage + 1 == stages_;  // holds the last block
      const int first = ends ? blocks_ - 1 : stage;
      const int last = stage == 0 && !ends ? 0 : blocks_ - (stages_ - stage);
      int block = first;
      while (block <= last && chain_.farthest_that_fits(stage, block, block + 1) == block) ++block;
      if (block > last) return true;
    }
    return false;
  }

  // Sums from left to right, as slowest_stage_time adds them: exact comparison needs the same rounding.
  void sum_times() {
    times_ = std::make_unique_for_overwrite<double[]>(time_index(0, blocks_ + 1));
    for (int end = 1; end <= blocks_; ++end) {
      const double time = problem_.block_times[static_cast<std::size_t>(end) - 1].value;
      const double* const before = times_.get() + (end > 1 ? time_index(0, end - 1) : 0);
      double* const sums = times_.get() + time_index(0, end);
      for (int start = 0; start + 1 < end; ++start) sums[start] = before[start] + time;  // each by itself: by vectors
      sums[end - 1] = time;
    }
  }
  static std::size_t time_index(int start, int end) {
    const auto last = static_cast<std::size_t>(end);
    return last * (last - 1) / 2 + static_cast<std::size_t>(start);
  }

  // All times of runs that the slowest stage can have, ascending and each once: it takes no less than the mean, and no
  // more than under cuts that are found on the way.
  std::vector<double> candidates_up_to(double most) const {
    constexpr int rounds = 12;
    constexpr double rounding = 1 - 1e-9;
    double least = times_[time_index(0, blocks_)] / stages_ * rounding;
    double known = least;
    bool tells = true;
    for (int round = 0; round < rounds && tells; ++round) {
      const double middle = known + (most - known) / 2;
      const Reach reach = reach_within(middle);
      const bool found = !reach.cuts.empty() && ranks_fit(reach.cuts);
      const bool none = reach.cuts.empty() && reach.proven;
      if (found) most = slowest(reach.cuts);
      if (none) known = middle;
      tells = found || none;
    }
    least = std::max(least, known);
    std::vector<double> candidates;
    for (int start = 0; start < blocks_; ++start) {
      int end = farthest_end(start, blocks_, [&](int to) { return times_[time_index(start, to)] <= most; });
      for (; end > start && times_[time_index(start, end)] > least; --end) {
        candidates.push_back(times_[time_index(start, end)]);
      }
    }
    std::ranges::sort(candidates);
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    return candidates;
  }

  double slowest(const std::vector<int>& cuts) const {
    double most = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      most = std::max(most, times_[time_index(start_of(cuts, stage), cuts[static_cast<std::size_t>(stage)])]);
    }
    return most;
  }

  // With a memory limit of each stage alone.
  Reach reach_within(double limit) const {
    return reach_of(blocks_, stages_, [&](int stage, int start) { return farthest(stage, start, limit); });
  }

  int farthest(int stage, int start, double limit) const {
    const int end = farthest_end(start, blocks_, [&](int to) { return times_[time_index(start, to)] <= limit; });
    return chain_.farthest_that_fits(stage, start, end);
  }

  void limit_memory() {
    if (!problem_.memory_per_rank || !fits_until_.empty()) return;
    for (int stage = 0; stage < stages_; ++stage) {
      fits_until_.push_back(farthest_ends(blocks_, [&](int start, int end) {
        return chain_.stage_bytes(stage, start, end) <= problem_.memory_per_rank->value;
      }));
    }
  }

  // Per stage and start: no stage slower than `limit`, none alone too large for its rank.
  StageWindows windows_within(double limit) {
    limit_memory();
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
    Reach reach = reach_within(limit);
    if (!reach.cuts.empty() && ranks_fit(reach.cuts)) return std::move(reach.cuts);
    if (reach.cuts.empty() && reach.proven) return std::nullopt;
    if (alike_) {
      const std::optional<std::vector<int>> known = alike_->largest(layers_within(limit));
      if (known) return known->empty() ? std::nullopt : known;
    }
    const StageWindows windows = windows_within(limit);
    const auto window = [&](int stage, int start) {
      return windows[static_cast<std::size_t>(stage)][static_cast<std::size_t>(start)];
    };
    const CutTable table(blocks_, stages_, window);
    auto cuts = table.largest_cuts(window);
    if (!cuts || ranks_fit(*cuts)) return cuts;
    if (!coupled_) coupled_.emplace(chain_, CoupledLimits{.bytes = problem_.memory_per_rank->value}, budget_);
    cuts = coupled_->any(windows);
    if (cuts && largest) return coupled_->largest(windows, *cuts);
    return cuts;
  }

  // Of layers that are alike: how many each stage can hold, no slower than `limit` and not too large alone.
  std::vector<LayerRange> layers_within(double limit) const {
    std::vector<LayerRange> ranges = alike_->any();
    for (int stage = 0; stage < stages_; ++stage) {
      LayerRange& range = ranges[static_cast<std::size_t>(stage)];
      if (stage + 1 < stages_) {
        const int start = stage == 0 ? 0 : 1;
        range.most = std::min(range.most, farthest(stage, start, limit) - 1);
        continue;
      }
      int start = blocks_;
      while (start > 1 && times_[time_index(start - 1, blocks_)] <= limit) --start;
      range.most = blocks_ - 1 - start;
    }
    return ranges;
  }

  bool ranks_fit(const std::vector<int>& cuts) const {
    if (!problem_.memory_per_rank) return true;
    for (int rank = 0; rank < chain_.ranks(); ++rank) {
      if (chain_.rank_bytes(rank, cuts) > problem_.memory_per_rank->value) return false;
    }
    return true;
  }

  const SplitProblem& problem_;
  const WeighedChain& chain_;
  int blocks_;
  int stages_;
  std::int64_t budget_;
  std::unique_ptr<double[]> times_;           // of all segments, by time_index
  std::vector<std::vector<int>> fits_until_;  // per stage and start, alone on its rank
  std::optional<CoupledCuts> coupled_;        // with a memory limit
  std::optional<EqualLayers> alike_;          // the same, where all layers are alike
};

}  // namespace

std::optional<Split> dynamic_split_within(const WeighedChain& chain, std::int64_t budget) {
  return DynamicSplit(chain, budget).run();
}

std::optional<Split> dynamic_split(const WeighedChain& chain) {
  return dynamic_split_within(chain, most_steps_of_proof);
}

}  // namespace plumb
