// A local search over cuts: makes a split faster by moving few cuts at a time, as long as that helps.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/split/weighed_chain.hpp"

namespace plumb {

// What makes one split better than another: the first difference decides, less is better.
struct CutOrder {
  std::int64_t excess_bytes = 0;  // of all ranks above their limit together
  std::int64_t pace = 0;          // the slowest rank's time, and the slowest stage's as often as is asked for
  std::int64_t rank_squares = 0;  // sum of squared times, of the ranks …
  std::int64_t stage_squares = 0;
  auto operator<=>(const CutOrder&) const = default;
};

// Its moves: one cut to any place between its neighbours; a run of neighbouring cuts, all by the same 1, 2, 4, …
// blocks, so that a block leaves one stage and another arrives at a distant one; two cuts, each to any place. A cut's
// best move is made if it makes the split better; the search ends where none does, or when its steps are used up.
// Whole numbers only: what a split weighs does not depend on how it was reached, so no split comes twice.
class CutSearch {
 public:
  static constexpr std::int64_t most_steps = 20'000'000;  // a fraction of a second

  // `memory_limit` in bytes per rank; the slowest stage counts `stage_weight` times beside the slowest rank.
  CutSearch(const WeighedChain& chain, std::optional<std::int64_t> memory_limit, int stage_weight,
            std::int64_t budget = most_steps);

  // The cuts that it arrives at from `cuts`: never worse.
  [[nodiscard]] std::vector<int> improved(const std::vector<int>& cuts);

  [[nodiscard]] CutOrder order_of(const std::vector<int>& cuts) const;

 private:
  struct Change {
    int stage = 0;  // the cut at its end
    int end = 0;    // where that is moved
  };

  [[nodiscard]] bool move_one();
  [[nodiscard]] bool move_runs();
  [[nodiscard]] bool move_two();
  void try_run(int first, int last, int by);
  void try_two(int first, int second);
  [[nodiscard]] std::vector<int> slowest_first() const;

  void start_at(const std::vector<int>& cuts);
  void consider();
  [[nodiscard]] bool commit();
  void swap_changes();
  [[nodiscard]] CutOrder order_of_times(const std::vector<int>& cuts) const;
  template <class Visit>
  void for_each_changed_stage(const Visit& visit) const;
  [[nodiscard]] std::int64_t change_times(CutOrder& order);
  [[nodiscard]] std::optional<CutOrder> weigh_changed();
  [[nodiscard]] std::int64_t more_excess();
  [[nodiscard]] std::int64_t excess(int rank, const std::vector<int>& cuts) const;
  [[nodiscard]] bool exhausted() const { return steps_ > budget_; }

  const WeighedChain& chain_;
  std::optional<std::int64_t> memory_limit_;
  int stage_weight_;
  std::int64_t budget_;
  std::int64_t steps_ = 0;
  StopWatch watch_;

  std::vector<int> cuts_;  // the ends of all stages
  CutOrder order_;
  std::vector<std::int64_t> stage_time_;
  std::vector<std::int64_t> rank_time_;
  std::vector<std::int64_t> rank_excess_;
  std::vector<int> ranks_by_time_;  // the slowest first
  std::vector<int> stages_by_time_;

  std::vector<Change> changes_;             // under consideration, by stage
  std::vector<std::size_t> changed_ranks_;  // those that take another time
  std::vector<std::int64_t> changed_rank_time_;
  std::vector<std::int64_t> stage_changed_at_;  // the last time, by clock
  std::vector<std::int64_t> rank_changed_at_;
  std::vector<std::int64_t> rank_seen_at_;
  std::int64_t clock_ = 0;

  CutOrder best_;  // of the changes considered for one cut
  std::vector<Change> best_changes_;
};

}  // namespace plumb
