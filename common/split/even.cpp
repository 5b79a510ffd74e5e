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
  EvenSplit(const SplitProblem& problem, Seconds limit)
      : problem_(problem),
        chain_(problem),
        limit_(limit.value),
        blocks_(problem.block_times.size()),
        stages_(problem.rank_of_stage.size()),
        cost_((stages_ + 1) * (blocks_ + 1), unreachable),
        end_(cost_.size(), 0) {}

  std::optional<Split> run() {
    cost_[index(stages_, blocks_)] = 0;
    const std::vector<std::size_t> first = earliest_starts();
    const std::vector<std::size_t> last = latest_starts();
    for (std::size_t stage = stages_; stage-- > 0;) {
      if (problem_.stop != nullptr) problem_.stop->check();
      for (std::size_t start = first[stage]; start <= last[stage]; ++start) settle(stage, start);
    }
    if (cost_[index(0, 0)] == unreachable) return std::nullopt;
    std::vector<int> cuts;
    std::size_t start = 0;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      start = end_[index(stage, start)];
      cuts.push_back(static_cast<int>(start));
    }
    return split_from_cuts(cuts);
  }

 private:
  [[nodiscard]] std::size_t index(std::size_t stage, std::size_t start) const { return stage * (blocks_ + 1) + start; }

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
    double& best = cost_[index(stage, start)];
    double seconds = 0;
    for (std::size_t end = start + 1; end <= blocks_; ++end) {
      seconds += problem_.block_times[end - 1].value;
      if (seconds > limit_ || !fits_alone(stage, start, end)) return;
      const double cost = seconds * seconds + cost_[index(stage + 1, end)];
      if (cost == unreachable || cost > best) continue;
      best = cost;
      end_[index(stage, start)] = end;
    }
  }

  // A bound where its rank holds other stages as well.
  [[nodiscard]] bool fits_alone(std::size_t stage, std::size_t start, std::size_t end) const {
    return !problem_.memory_per_rank || chain_.stage_bytes(static_cast<int>(stage), static_cast<int>(start),
                                                           static_cast<int>(end)) <= problem_.memory_per_rank->value;
  }

  const SplitProblem& problem_;
  WeighedChain chain_;
  double limit_;
  std::size_t blocks_;
  std::size_t stages_;
  std::vector<double> cost_;      // by stage and start: least sum of squares from there on
  std::vector<std::size_t> end_;  // of that stage
};

}  // namespace

Split evened(const SplitProblem& problem, const Split& split) {
  Split even = EvenSplit(problem, slowest_stage_time(problem, split)).run().value_or(split);
  // Ranks with several stages couple them: the given split stands where the even one takes too much.
  return fits(problem, even) ? even : split;
}

}  // namespace plumb
