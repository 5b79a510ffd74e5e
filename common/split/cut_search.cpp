#include "common/split/cut_search.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace plumb {
namespace {

std::int64_t square(std::int64_t number) { return number * number; }

// Numbers of the entries, the largest entry first.
std::vector<int> largest_first(const std::vector<std::int64_t>& times) {
  std::vector<int> order(times.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int n) { return times[static_cast<std::size_t>(n)]; });
  return order;
}

// The largest entry that was not changed at `clock`, 0 if all were.
std::int64_t largest_unchanged(const std::vector<int>& order, const std::vector<std::int64_t>& times,
                               const std::vector<std::int64_t>& changed_at, std::int64_t clock) {
  for (const int n : order) {
    if (changed_at[static_cast<std::size_t>(n)] != clock) return times[static_cast<std::size_t>(n)];
  }
  return 0;
}

}  // namespace

CutSearch::CutSearch(const WeighedChain& chain, std::optional<std::int64_t> memory_limit, int stage_weight,
                     std::int64_t budget)
    : chain_(chain), memory_limit_(memory_limit), stage_weight_(stage_weight), budget_(budget), watch_(chain.stop()) {}

std::vector<int> CutSearch::improved(const std::vector<int>& cuts) {
  start_at(cuts);
  while (!exhausted() && (move_one() || move_runs() || move_two())) {
  }
  return cuts_;
}

CutOrder CutSearch::order_of(const std::vector<int>& cuts) const {
  CutOrder order = order_of_times(cuts);
  for (int rank = 0; rank < chain_.ranks(); ++rank) order.excess_bytes += excess(rank, cuts);
  return order;
}

CutOrder CutSearch::order_of_times(const std::vector<int>& cuts) const {
  CutOrder order;
  std::int64_t slowest_stage = 0;
  for (int stage = 0; stage < chain_.stages(); ++stage) {
    const std::int64_t time = chain_.time(start_of(cuts, stage), cuts[static_cast<std::size_t>(stage)]);
    slowest_stage = std::max(slowest_stage, time);
    order.stage_squares += square(time);
  }
  for (int rank = 0; rank < chain_.ranks(); ++rank) {
    const std::int64_t time = chain_.rank_time(rank, cuts);
    order.pace = std::max(order.pace, time);
    order.rank_squares += square(time);
  }
  order.pace += stage_weight_ * slowest_stage;
  return order;
}

void CutSearch::start_at(const std::vector<int>& cuts) {
  cuts_ = cuts;
  order_ = order_of_times(cuts);
  rank_excess_.clear();
  for (int rank = 0; rank < chain_.ranks(); ++rank) {
    rank_excess_.push_back(excess(rank, cuts_));
    order_.excess_bytes += rank_excess_.back();
  }
  best_ = order_;
  best_changes_.clear();
  stage_time_.clear();
  for (int stage = 0; stage < chain_.stages(); ++stage) {
    stage_time_.push_back(chain_.time(start_of(cuts_, stage), cuts_[static_cast<std::size_t>(stage)]));
  }
  rank_time_.clear();
  for (int rank = 0; rank < chain_.ranks(); ++rank) rank_time_.push_back(chain_.rank_time(rank, cuts_));
  stages_by_time_ = largest_first(stage_time_);
  ranks_by_time_ = largest_first(rank_time_);
  stage_changed_at_.assign(stage_time_.size(), 0);
  rank_changed_at_.assign(rank_time_.size(), 0);
  rank_seen_at_.assign(rank_time_.size(), 0);
  changed_rank_time_.resize(rank_time_.size());
  clock_ = 0;
}

std::int64_t CutSearch::excess(int rank, const std::vector<int>& cuts) const {
  if (!memory_limit_) return 0;
  return std::max<std::int64_t>(chain_.rank_bytes(rank, cuts) - *memory_limit_, 0);
}

bool CutSearch::move_one() {
  bool moved = false;
  for (int stage = 0; stage + 1 < chain_.stages() && !exhausted(); ++stage) {
    const int last = cuts_[static_cast<std::size_t>(stage) + 1] - 1;
    for (int end = start_of(cuts_, stage) + 1; end <= last; ++end) {
      if (end == cuts_[static_cast<std::size_t>(stage)]) continue;
      changes_.assign(1, {.stage = stage, .end = end});
      consider();
    }
    moved = commit() || moved;
  }
  return moved;
}

bool CutSearch::move_runs() {
  bool moved = false;
  for (int first = 0; first + 2 < chain_.stages(); ++first) {
    for (int last = first + 1; last + 1 < chain_.stages() && !exhausted(); ++last) {
      const int behind = cuts_[static_cast<std::size_t>(last) + 1] - cuts_[static_cast<std::size_t>(last)];
      const int before = cuts_[static_cast<std::size_t>(first)] - start_of(cuts_, first);
      for (int by = 1; by < behind; by *= 2) try_run(first, last, by);
      for (int by = 1; by < before; by *= 2) try_run(first, last, -by);
    }
    moved = commit() || moved;
  }
  return moved;
}

void CutSearch::try_run(int first, int last, int by) {
  changes_.clear();
  for (int stage = first; stage <= last; ++stage) {
    changes_.push_back({.stage = stage, .end = cuts_[static_cast<std::size_t>(stage)] + by});
  }
  consider();
}

bool CutSearch::move_two() {
  const std::vector<int> cuts = slowest_first();
  bool moved = false;
  for (std::size_t one = 0; one < cuts.size(); ++one) {
    for (std::size_t other = one + 1; other < cuts.size() && !exhausted(); ++other) {
      try_two(std::min(cuts[one], cuts[other]), std::max(cuts[one], cuts[other]));
    }
    moved = commit() || moved;
  }
  return moved;
}

void CutSearch::try_two(int first, int second) {
  const bool neighbours = first + 1 == second;
  const int second_last = cuts_[static_cast<std::size_t>(second) + 1] - 1;
  const int first_last = neighbours ? second_last - 1 : cuts_[static_cast<std::size_t>(first) + 1] - 1;
  for (int end = start_of(cuts_, first) + 1; end <= first_last && !exhausted(); ++end) {
    if (end == cuts_[static_cast<std::size_t>(first)]) continue;
    for (int other = (neighbours ? end : start_of(cuts_, second)) + 1; other <= second_last; ++other) {
      if (other == cuts_[static_cast<std::size_t>(second)]) continue;
      changes_.assign({{.stage = first, .end = end}, {.stage = second, .end = other}});
      consider();
    }
  }
}

// All cuts, those of the slowest rank's stages first: no others make it faster.
std::vector<int> CutSearch::slowest_first() const {
  std::vector<int> cuts(static_cast<std::size_t>(chain_.stages()) - 1);
  std::iota(cuts.begin(), cuts.end(), 0);
  const int slowest = ranks_by_time_.front();
  std::stable_partition(cuts.begin(), cuts.end(),
                        [&](int cut) { return chain_.rank_of(cut) == slowest || chain_.rank_of(cut + 1) == slowest; });
  return cuts;
}

// Keeps the changes if they are the best so far.
void CutSearch::consider() {
  watch_.turn();
  swap_changes();
  const std::optional<CutOrder> order = weigh_changed();
  swap_changes();
  if (!order) return;
  best_ = *order;
  best_changes_ = changes_;
}

// Makes the best changes, if any were better than none.
bool CutSearch::commit() {
  if (best_changes_.empty()) return false;
  for (const Change& change : best_changes_) cuts_[static_cast<std::size_t>(change.stage)] = change.end;
  start_at(std::vector<int>(cuts_));
  return true;
}

void CutSearch::swap_changes() {
  for (Change& change : changes_) std::swap(cuts_[static_cast<std::size_t>(change.stage)], change.end);
}

// Calls `visit(stage)` for the stages on both sides of each cut that changes, each once.
template <class Visit>
void CutSearch::for_each_changed_stage(const Visit& visit) const {
  int behind = 0;  // those that were visited
  for (const Change& change : changes_) {
    for (int stage = std::max(change.stage, behind); stage <= change.stage + 1; ++stage) visit(stage);
    behind = change.stage + 2;
  }
}

// What the changed stages make of the order's squares, and which ranks take another time now; stages whose time stays
// change nothing. Returns the slowest of the changed stages.
std::int64_t CutSearch::change_times(CutOrder& order) {
  changed_ranks_.clear();
  std::int64_t slowest = 0;
  for_each_changed_stage([&](int stage) {
    ++steps_;
    const auto n = static_cast<std::size_t>(stage);
    const std::int64_t time = chain_.time(start_of(cuts_, stage), cuts_[n]);
    const std::int64_t more = time - stage_time_[n];
    if (more == 0) return;
    stage_changed_at_[n] = clock_;
    slowest = std::max(slowest, time);
    order.stage_squares += square(time) - square(stage_time_[n]);
    const auto rank = static_cast<std::size_t>(chain_.rank_of(stage));
    if (rank_changed_at_[rank] != clock_) {
      rank_changed_at_[rank] = clock_;
      changed_rank_time_[rank] = rank_time_[rank];
      changed_ranks_.push_back(rank);
    }
    changed_rank_time_[rank] += more;
  });
  return slowest;
}

// The order of the changed cuts if it is below the best, else none. Memory last: it takes longest to add up.
std::optional<CutOrder> CutSearch::weigh_changed() {
  ++clock_;
  CutOrder order = order_;
  const std::int64_t slowest_changed_stage = change_times(order);
  std::int64_t slowest_rank = largest_unchanged(ranks_by_time_, rank_time_, rank_changed_at_, clock_);
  for (const std::size_t rank : changed_ranks_) {
    const std::int64_t time = changed_rank_time_[rank];
    if (best_.excess_bytes == 0 && time > best_.pace) return std::nullopt;
    slowest_rank = std::max(slowest_rank, time);
    order.rank_squares += square(time) - square(rank_time_[rank]);
  }
  const std::int64_t slowest_stage =
      std::max(slowest_changed_stage, largest_unchanged(stages_by_time_, stage_time_, stage_changed_at_, clock_));
  order.pace = slowest_rank + stage_weight_ * slowest_stage;
  if (best_.excess_bytes == 0 && order >= best_) return std::nullopt;
  if (memory_limit_) order.excess_bytes += more_excess();
  return order < best_ ? std::optional(order) : std::nullopt;
}

// Of all ranks whose stages changed, also those whose time stayed.
std::int64_t CutSearch::more_excess() {
  std::int64_t more = 0;
  for_each_changed_stage([&](int stage) {
    const int rank = chain_.rank_of(stage);
    std::int64_t& seen_at = rank_seen_at_[static_cast<std::size_t>(rank)];
    if (seen_at == clock_) return;
    seen_at = clock_;
    more += excess(rank, cuts_) - rank_excess_[static_cast<std::size_t>(rank)];
    steps_ += static_cast<std::int64_t>(chain_.moments_of(rank).size());
  });
  return more;
}

}  // namespace plumb
