// A split problem in whole numbers, summed up once: what any stage and any rank takes under given cuts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/split/split.hpp"

namespace plumb {

// Throws InputError for what cannot be weighed: lists that do not fit together, negative or infinite entries, counts
// that are not of the problem's layers and stages.
void require_sound(const SplitProblem& problem);
void require_split_of(const SplitProblem& problem, const Split& split);

// Blocks between two cuts are [start, end). Cuts are given as the ends of all stages.
class WeighedChain {
 public:
  // Times are in units of a 2³⁰th of the whole chain's: sums and squares are exact in whatever order they are added up.
  static constexpr std::int64_t whole_time = std::int64_t{1} << 30;

  // `problem` must be sound, and stay: its moments are not copied.
  explicit WeighedChain(const SplitProblem& problem);
  explicit WeighedChain(SplitProblem&& problem) = delete;

  [[nodiscard]] const Stop* stop() const { return stop_; }
  [[nodiscard]] int blocks() const { return static_cast<int>(time_before_.size()) - 1; }
  [[nodiscard]] int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  [[nodiscard]] int ranks() const { return static_cast<int>(moments_->size()); }
  [[nodiscard]] int rank_of(int stage) const { return rank_of_stage_[static_cast<std::size_t>(stage)]; }
  [[nodiscard]] const std::vector<int>& stages_of(int rank) const {
    return stages_of_rank_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int most_stages_of_a_rank() const {
    std::size_t most = 0;
    for (const std::vector<int>& stages : stages_of_rank_) most = std::max(most, stages.size());
    return static_cast<int>(most);
  }
  [[nodiscard]] const std::vector<Moment>& moments_of(int rank) const {
    return (*moments_)[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] std::int64_t time(int start, int end) const { return between(time_before_, start, end); }
  [[nodiscard]] std::int64_t fixed_bytes(int start, int end) const { return between(fixed_before_, start, end); }
  [[nodiscard]] std::int64_t kept_bytes(int start, int end) const { return between(kept_before_, start, end); }

  // Whether blocks take the same time and bytes.
  [[nodiscard]] bool alike(int block, int other) const;

  // Beside what is kept of a microbatch, while a stage of these blocks works on it. Where a stage holds at least that
  // microbatch, more blocks never need less together with what they keep, though their workspace alone may.
  [[nodiscard]] bool has_workspaces() const { return !forward_peaks_.empty(); }
  [[nodiscard]] std::int64_t workspace(int start, int end) const;
  [[nodiscard]] std::int64_t reserve(int rank) const {
    return reserve_.empty() ? 0 : reserve_[static_cast<std::size_t>(rank)].value;
  }

  // Of a stage alone, at the worst of its rank's moments.
  [[nodiscard]] std::int64_t stage_bytes(int stage, int start, int end) const {
    const int held = most_held_[static_cast<std::size_t>(stage)];
    return reserve(rank_of(stage)) + fixed_bytes(start, end) + held * kept_bytes(start, end) +
           (held > 0 ? workspace(start, end) : 0);
  }
  // Of all stages of a rank together.
  [[nodiscard]] std::int64_t rank_time(int rank, const std::vector<int>& cuts) const;
  // Which of a rank's stages may work at a moment, by their places among them: nobody, if that needs no more memory.
  static constexpr int nobody = -1;
  template <class Visit>
  void for_each_working(const Moment& moment, const Visit& visit) const {
    bool works = false;
    for (std::size_t own = 0; has_workspaces() && own < moment.size(); ++own) {
      if (moment[own] == 0) continue;
      visit(static_cast<int>(own));
      works = true;
    }
    if (!works) visit(nobody);
  }
  // At one moment, while one of them works, without its reserve.
  [[nodiscard]] std::int64_t working_bytes(int rank, const Moment& moment, int working,
                                           const std::vector<int>& cuts) const;
  // At the worst of its moments, while that of its stages works that needs most for it.
  [[nodiscard]] std::int64_t rank_bytes(int rank, const std::vector<int>& cuts) const;

 private:
  [[nodiscard]] static std::int64_t between(const std::vector<std::int64_t>& before, int start, int end) {
    return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(start)];
  }

  // The largest entry of any run of blocks: of 1, 2, 4, … blocks from each on.
  using RunPeaks = std::vector<std::vector<std::int64_t>>;
  [[nodiscard]] static RunPeaks run_peaks(std::vector<std::int64_t> entries);
  [[nodiscard]] static std::int64_t largest(const RunPeaks& peaks, int start, int end);
  void add_workspaces(const SplitProblem& problem);

  std::vector<std::int64_t> time_before_;  // of the blocks before each block
  std::vector<std::int64_t> fixed_before_;
  std::vector<std::int64_t> kept_before_;
  std::vector<int> rank_of_stage_;
  std::vector<std::vector<int>> stages_of_rank_;
  const std::vector<std::vector<Moment>>* moments_;  // the problem's, per rank
  std::vector<int> most_held_;                       // per stage, at any moment
  std::vector<Bytes> reserve_;                       // by rank
  std::vector<BlockWorkspace> workspaces_;
  std::vector<std::int64_t> for_weight_before_;
  RunPeaks forward_peaks_;  // by block, what in_sequence takes the worst of, as if the chain began the stage
  RunPeaks input_peaks_;
  RunPeaks weight_peaks_;
  const Stop* stop_;  // the problem's
};

[[nodiscard]] inline int start_of(const std::vector<int>& cuts, int stage) {
  return stage == 0 ? 0 : cuts[static_cast<std::size_t>(stage) - 1];
}

// The ends of a split's stages.
[[nodiscard]] std::vector<int> cuts_of(const Split& split);

}  // namespace plumb
