// The step of 1F1B with one stage per rank is bound by some stage, the pivot (DAPPLE, arXiv 2007.01045, section 4.1):
// the blocks before it are passed through once on the way in and once on the way out, and it works for all M
// microbatches,
//   T = max over stages s of (t of all blocks before s) + M · t_s.
// That is no more than for the stages before it, whose own M microbatches end earlier: they may be a little slower. A
// limit of T lets a stage reach the farther the later it begins, so that the cuts that go as far as they can decide
// whether there are any, as in the dynamic split; the least T is found by bisection.
#include <algorithm>

#include "common/split/chain.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {
namespace {

class PivotSplit {
 public:
  PivotSplit(const WeighedChain& chain, std::int64_t microbatches) : chain_(chain), microbatches_(microbatches) {}

  // From cuts that fit on, as long as the limit of T becomes clearly less.
  std::vector<int> improved(std::vector<int> cuts) const {
    constexpr std::int64_t tolerance = 20'000;  // of T, the part that does not matter
    std::int64_t high = worst(cuts);
    std::int64_t low =
        std::min(high, microbatches_ * WeighedChain::whole_time / chain_.stages());  // one less is too low
    while (high - low > high / tolerance) {
      const std::int64_t middle = low + (high - low) / 2;
      std::vector<int> found = cuts_within(middle);
      if (found.empty()) {
        low = middle + 1;
        continue;
      }
      high = std::min(middle, worst(found));
      cuts = std::move(found);
    }
    return cuts;
  }

 private:
  [[nodiscard]] std::int64_t as_pivot(int start, int end) const {
    return chain_.time(0, start) + microbatches_ * chain_.time(start, end);
  }
  [[nodiscard]] std::int64_t worst(const std::vector<int>& cuts) const {
    std::int64_t most = 0;
    for (int stage = 0; stage < chain_.stages(); ++stage) {
      most = std::max(most, as_pivot(start_of(cuts, stage), cuts[static_cast<std::size_t>(stage)]));
    }
    return most;
  }

  // Empty: those that go as far as they can do not reach the end.
  [[nodiscard]] std::vector<int> cuts_within(std::int64_t pace) const {
    const auto farthest = [&](int stage, int start) {
      const int end = farthest_end(start, chain_.blocks(), [&](int to) { return as_pivot(start, to) <= pace; });
      return chain_.farthest_that_fits(stage, start, end);
    };
    return reach_of(chain_.blocks(), chain_.stages(), farthest).cuts;
  }

  const WeighedChain& chain_;
  std::int64_t microbatches_;
};

}  // namespace

Split pivot_split(const WeighedChain& chain, const Split& split, std::int64_t microbatches) {
  require_split_of(chain.problem(), split);
  return split_from_cuts(PivotSplit(chain, microbatches).improved(cuts_of(split)));
}

}  // namespace plumb
