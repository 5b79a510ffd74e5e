// A split problem in whole numbers, summed up once: what any stage and any rank takes under given cuts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/split/split.hpp"

namespace plumb {

// Throws InputError for counts that are not of the problem's layers and stages.
void require_split_of(const SplitProblem& problem, const Split& split);

// Blocks between two cuts are [start, end). Cuts are given as the ends of all stages.
class WeighedChain {
 public:
  // Times are in units of a 2³⁰th of the whole chain's: sums and squares are exact in whatever order they are added up.
  static constexpr std::int64_t whole_time = std::int64_t{1} << 30;

  // Every problem is one. It must stay: its lists are not copied. Throws InputError for what cannot be weighed: lists
  // that do not fit together, negative or infinite entries.
  WeighedChain(const SplitProblem& problem);
  WeighedChain(SplitProblem&& problem) = delete;

  [[nodiscard]] const SplitProblem& problem() const { return *problem_; }
  [[nodiscard]] const Stop* stop() const { return problem_->stop; }
  [[nodiscard]] int blocks() const { return static_cast<int>(time_before_.size()) - 1; }
  [[nodiscard]] int stages() const { return static_cast<int>(problem_->rank_of_stage.size()); }
  [[nodiscard]] int ranks() const { return static_cast<int>(problem_->moments.size()); }
  [[nodiscard]] int rank_of(int stage) const { return problem_->rank_of_stage[static_cast<std::size_t>(stage)]; }
  // Ascending.
  [[nodiscard]] std::span<const int> stages_of(int rank) const {
    const auto first = static_cast<std::size_t>(first_of_rank_[static_cast<std::size_t>(rank)]);
    const auto last = static_cast<std::size_t>(first_of_rank_[static_cast<std::size_t>(rank) + 1]);
    return std::span(stages_by_rank_).subspan(first, last - first);
  }
  [[nodiscard]] int most_stages_of_a_rank() const {
    std::size_t most = 0;
    for (int rank = 0; rank < ranks(); ++rank) most = std::max(most, stages_of(rank).size());
    return static_cast<int>(most);
  }
  [[nodiscard]] const std::vector<Moment>& moments_of(int rank) const {
    return problem_->moments[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] std::int64_t time(int start, int end) const { return between(time_before_, start, end); }
  [[nodiscard]] std::int64_t fixed_bytes(int start, int end) const { return between(fixed_before_, start, end); }
  [[nodiscard]] std::int64_t kept_bytes(int start, int end) const { return between(kept_before_, start, end); }

  // Whether blocks take the same time and bytes.
  [[nodiscard]] bool alike(int block, int other) const;

  // Beside what is kept of a microbatch, while a stage of these blocks works on it. Where a stage holds at least that
  // microbatch, more blocks never need less together with what they keep, though their workspace alone may.
  [[nodiscard]] bool has_workspaces() const { return !problem_->block_workspaces.empty(); }
  [[nodiscard]] std::int64_t workspace(int start, int end) const;
  [[nodiscard]] std::int64_t reserve(int rank) const {
    const std::vector<Bytes>& reserve = problem_->rank_reserve;
    return reserve.empty() ? 0 : reserve[static_cast<std::size_t>(rank)].value;
  }

  // Microbatches of the stage that holds fewest, each at the worst of its rank's moments.
  [[nodiscard]] int least_held() const { return *std::ranges::min_element(most_held_); }

  // Of a stage alone, at the worst of its rank's moments.
  [[nodiscard]] std::int64_t stage_bytes(int stage, int start, int end) const {
    const int held = most_held_[static_cast<std::size_t>(stage)];
    return reserve(rank_of(stage)) + fixed_bytes(start, end) + held * kept_bytes(start, end) +
           (held > 0 ? workspace(start, end) : 0);
  }
  // The farthest end, up to `end`, with which a stage alone keeps the problem's limit; `start`: not one block does.
  [[nodiscard]] int farthest_that_fits(int stage, int start, int end) const;
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

  // By block, what in_sequence takes the worst of, as if the chain began the stage.
  struct Peaks {
    std::int64_t forward = 0;
    std::int64_t input = 0;
    std::int64_t weight = 0;
  };

  [[nodiscard]] static Peaks larger(const Peaks& a, const Peaks& b) {
    return {std::max(a.forward, b.forward), std::max(a.input, b.input), std::max(a.weight, b.weight)};
  }

  void add_stages();
  void add_blocks();
  void add_workspaces();
  [[nodiscard]] Peaks largest_peaks(int start, int end) const;

  const SplitProblem* problem_;
  std::vector<std::int64_t> time_before_;  // of the blocks before each block
  std::vector<std::int64_t> fixed_before_;
  std::vector<std::int64_t> kept_before_;
  std::vector<std::int64_t> for_weight_before_;
  std::vector<int> stages_by_rank_;  // those of rank 0, of rank 1, …
  std::vector<int> first_of_rank_;   // where they begin; with the end of all
  std::vector<int> most_held_;       // per stage, at any moment
  std::vector<Peaks> run_peaks_;     // the largest of 1, 2, 4, … blocks from each on; a row of all blocks for each
};

[[nodiscard]] inline int start_of(const std::vector<int>& cuts, int stage) {
  return stage == 0 ? 0 : cuts[static_cast<std::size_t>(stage) - 1];
}

// The ends of a split's stages.
[[nodiscard]] std::vector<int> cuts_of(const Split& split);

}  // namespace plumb
