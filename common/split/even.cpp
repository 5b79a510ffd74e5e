#include <limits>
#include <optional>
#include <vector>

#include "common/split/chain.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {
namespace {

constexpr double unreachable = std::numeric_limits<double>::infinity();

// Dynamic programming from the last stage to the first. A stage ends where its time passes the limit, so that the ends
// that are tried add up to about the blocks times the longest stage.
class EvenSplit {
 public:
  EvenSplit(const WeighedChain& chain, Seconds limit)
      : problem_(chain.problem()),
        chain_(chain),
        limit_(limit.value),
        blocks_(problem_.block_times.size()),
        stages_(problem_.rank_of_stage.size()) {}

  std::optional<Split> run() {
    add_rows();
    for (std::size_t stage = stages_; stage-- > 0;) {
      if (problem_.stop != nullptr) problem_.stop->check();
      for (std::size_t start = rows_[stage].first; start <= rows_[stage].last; ++start) settle(stage, start);
    }
    if (cost(0, 0) == unreachable) return std::nullopt;
    std::vector<int> cuts;
    std::size_t start = 0;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      start = tails_[index(stage, start)].end;
      cuts.push_back(static_cast<int>(start));
    }
    return split_from_cuts(cuts);
  }

 private:
  // The cheapest way on from a stage's start.
  struct Tail {
    double cost = unreachable;  // sum of squares
    std::size_t end = 0;        // of the stage
  };
  // The starts of a stage that may be of use; last < first: none.
  struct Row {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t begin = 0;  // of its tails among all
  };

  void add_rows() {
    const std::vector<std::size_t> first = earliest_starts();
    const std::vector<std::size_t> last = latest_starts();
    std::size_t begin = 0;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      rows_.push_back({.first = first[stage], .last = last[stage], .begin = begin});
      if (last[stage] >= first[stage]) begin += last[stage] - first[stage] + 1;
    }
    rows_.push_back({.first = blocks_, .last = blocks_, .begin = begin});
    tails_.resize(begin + 1);
    tails_.back().cost = 0;
  }

  [[nodiscard]] std::size_t index(std::size_t stage, std::size_t start) const {
    return rows_[stage].begin + start - rows_[stage].first;
  }
  [[nodiscard]] double cost(std::size_t stage, std::size_t start) const {
    if (start < rows_[stage].first || start > rows_[stage].last) return unreachable;
    return tails_[index(stage, start)].cost;
  }

  // From which the end can still be reached, and which can be reached, by times alone: a bound for each stage, with
  // room for rounding.
  static constexpr double rounding = 1 + 1e-9;
  [[nodiscard]] std::vector<std::size_t> earliest_starts() const {
    std::vector<std::size_t> first(stages_);
    std::size_t start = blocks_;
    for (std::size_t stage = stages_; stage-- > 0;) {
      double seconds = 0;
      while (start > stage && (seconds += problem_.block_times[start - 1].value) <= limit_ * rounding) --start;
      first[stage] = start;
    }
    return first;
  }
  [[nodiscard]] std::vector<std::size_t> latest_starts() const {
    std::vector<std::size_t> last(stages_);
    std::size_t start = 0;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      last[stage] = start;
      double seconds = 0;
      const std::size_t most = blocks_ - (stages_ - stage - 1);
      while (start < most && (seconds += problem_.block_times[start].value) <= limit_ * rounding) ++start;
    }
    return last;
  }

  // The cheapest end of a stage that begins at `start`; the latest of equal ones.
  void settle(std::size_t stage, std::size_t start) {
    Tail& best = tails_[index(stage, start)];
    const std::size_t last = farthest(stage, start);
    double seconds = 0;
    for (std::size_t end = start + 1; end <= last; ++end) {
      seconds += problem_.block_times[end - 1].value;
      const double with = seconds * seconds + cost(stage + 1, end);
      if (with == unreachable || with > best.cost) continue;
      best = {.cost = with, .end = end};
    }
  }

  // No slower than the limit, and not too large alone: a bound where its rank holds other stages as well.
  [[nodiscard]] std::size_t farthest(std::size_t stage, std::size_t start) const {
    double seconds = 0;
    std::size_t end = start;
    while (end < blocks_ && (seconds += problem_.block_times[end].value) <= limit_) ++end;
    const int last = chain_.farthest_that_fits(static_cast<int>(stage), static_cast<int>(start), static_cast<int>(end));
    return static_cast<std::size_t>(last);
  }

  const SplitProblem& problem_;
  const WeighedChain& chain_;
  double limit_;
  std::size_t blocks_;
  std::size_t stages_;
  std::vector<Row> rows_;    // by stage, with one behind the last
  std::vector<Tail> tails_;  // by stage and start
};

}  // namespace

Split evened(const WeighedChain& chain, const Split& split) {
  Split even = EvenSplit(chain, slowest_stage_time(chain.problem(), split)).run().value_or(split);
  // Ranks with several stages couple them: the given split stands where the even one takes too much.
  return fits(chain, even) ? even : split;
}

}  // namespace plumb
