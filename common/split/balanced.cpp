#include <algorithm>
#include <map>
#include <utility>

#include "common/split/coupled.hpp"
#include "common/split/cut_search.hpp"
#include "common/split/equal_layers.hpp"

namespace plumb {
namespace {

constexpr std::int64_t most_steps_of_search = 1'000'000;  // over all cuts: some tenths of a second

// A proof is only worth more than a start for the local search where nothing else finds a split that fits.
constexpr std::int64_t most_steps_of_start = 1'000'000;

// The ends that leave every stage alone within the limits, by stage and start.
StageWindows windows_within(const WeighedChain& chain, const CoupledLimits& limits) {
  StageWindows windows(static_cast<std::size_t>(chain.stages()));
  for (int stage = 0; stage < chain.stages(); ++stage) {
    const auto fits = [&](int start, int end) {
      return (!limits.time || chain.time(start, end) <= *limits.time) &&
             (!limits.bytes || chain.stage_bytes(stage, start, end) <= *limits.bytes);
    };
    std::vector<EndWindow>& own = windows[static_cast<std::size_t>(stage)];
    for (const int end : farthest_ends(chain.blocks(), fits)) own.push_back({static_cast<int>(own.size()) + 1, end});
  }
  return windows;
}

// Whether the blocks could be shared out to the ranks, no rank slower than `limit`, if they needed no order; a cheap
// look at the most frequent time alone: so many of these fit a rank, and another block that needs more than they leave
// takes the place of some. False is a proof that no cuts are that fast.
bool blocks_fit_in_ranks(const WeighedChain& chain, std::int64_t limit) {
  std::map<std::int64_t, std::int64_t> counts;
  for (int block = 0; block < chain.blocks(); ++block) ++counts[chain.time(block, block + 1)];
  const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [usual, count] = *std::ranges::max_element(counts, by_count);
  if (usual == 0) return true;
  const std::int64_t of_rank = limit / usual;
  const std::int64_t left = limit - of_rank * usual;
  const std::int64_t largest = counts.rbegin()->first;
  const std::int64_t displaced = largest > left && largest != usual ? (largest - left + usual - 1) / usual : 0;
  return largest <= limit && of_rank * chain.ranks() - displaced >= count;
}

class BalancedSplit {
 public:
  BalancedSplit(const WeighedChain& chain, BalanceAim aim) : chain_(chain), aim_(aim) {
    if (chain.problem().memory_per_rank) memory_limit_ = chain.problem().memory_per_rank->value;
  }

  // Keeps where the local search arrives if that is the best so far.
  void improve_from(const std::vector<int>& start) {
    CutSearch search(chain_, memory_limit_, aim_ == BalanceAim::pace ? chain_.most_stages_of_a_rank() : 0);
    std::vector<int> cuts = search.improved(start);
    const CutOrder order = search.order_of(cuts);
    if (!best_.empty() && order >= order_) return;
    best_ = std::move(cuts);
    order_ = order;
  }

  // Looks among all cuts for any whose slowest rank is faster, and goes on from there.
  void search_all() {
    if (aim_ != BalanceAim::slowest_rank || order_.excess_bytes > 0) return;
    const bool equal_layers = EqualLayers::are(chain_);
    for (std::int64_t steps = 0; steps < most_steps_of_search;) {
      const CoupledLimits limits{.bytes = memory_limit_, .time = order_.pace - 1};
      if (!blocks_fit_in_ranks(chain_, order_.pace - 1)) return;
      if (equal_layers) {
        EqualLayers alike(chain_, limits);
        if (alike.possible(alike.any()) == false) return;
      }
      const StageWindows windows = windows_within(chain_, limits);
      CoupledCuts faster(chain_, limits, most_steps_of_search - steps);
      const CoupledCuts::Search found = faster.search(windows);
      if (!found.cuts) return;
      steps += faster.steps() + 1;
      improve_from(*found.cuts);
    }
  }

  [[nodiscard]] Split best() const { return split_from_cuts(best_); }

 private:
  const WeighedChain& chain_;
  BalanceAim aim_;
  std::optional<std::int64_t> memory_limit_;
  std::vector<int> best_;
  CutOrder order_;
};

void add_if_new(std::vector<Split>& splits, const Split& split) {
  if (std::ranges::find(splits, split) == splits.end()) splits.push_back(split);
}

}  // namespace

bool fits(const WeighedChain& chain, const Split& split) {
  const std::optional<Bytes> limit = chain.problem().memory_per_rank;
  return !limit || std::ranges::all_of(rank_memory(chain, split), [&](Bytes bytes) { return bytes <= *limit; });
}

Split balanced_split(const WeighedChain& chain, const std::vector<Split>& starts, BalanceAim aim) {
  BalancedSplit balance(chain, aim);
  for (const Split& start : starts) {
    require_split_of(chain.problem(), start);
    balance.improve_from(cuts_of(start));
  }
  balance.search_all();
  return balance.best();
}

std::vector<Split> fast_splits(const WeighedChain& chain) {
  std::vector<Split> splits;
  std::vector<Split> starts;
  bool proven = true;
  try {
    const std::optional<Split> optimum = dynamic_split_within(chain, most_steps_of_start);
    if (!optimum) return {};
    splits.push_back(evened(chain, *optimum));
    if (chain.most_stages_of_a_rank() == 1) return splits;
    starts.push_back(*optimum);
  } catch (const TooLongToProve&) {
    proven = false;
    SplitProblem unlimited = chain.problem();
    unlimited.memory_per_rank.reset();
    starts.push_back(dynamic_split(unlimited).value());
  }
  const Split uniform = uniform_split(chain.blocks() - 2, chain.stages());
  add_if_new(starts, uniform);
  for (const BalanceAim aim : {BalanceAim::pace, BalanceAim::slowest_rank}) {
    const Split split = balanced_split(chain, starts, aim);
    if (fits(chain, split)) add_if_new(splits, split);
  }
  if (fits(chain, uniform)) add_if_new(splits, uniform);
  if (!splits.empty() || proven) return splits;
  const std::optional<Split> optimum = dynamic_split(chain);
  return optimum ? std::vector{*optimum} : std::vector<Split>{};
}

}  // namespace plumb
