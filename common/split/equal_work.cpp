#include "common/split/equal_work.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr int halvings = 60;           // of the range of what the longest slice takes: until rounding ends it
constexpr double near_enough = 1e-12;  // where another halving says nothing

class EqualWork {
 public:
  EqualWork(const SliceProblem& problem, const SliceWork& work)
      : problem_(problem), work_(work), units_(problem.sequence / problem.multiple), slices_(problem.slices) {}

  std::vector<std::int64_t> run() {
    // As even as whole multiples are: known to be enough.
    std::vector<std::int64_t> best = even_units();
    Seconds enough = longest(best);
    Seconds too_little;
    for (int i = 0; i < halvings && (enough - too_little).value > near_enough * enough.value; ++i) {
      const Seconds middle = too_little + (enough - too_little) / 2;
      if (auto found = within(middle)) {
        best = std::move(*found);
        enough = std::min(longest(best), middle);
      } else {
        too_little = middle;
      }
    }
    even_out(best);
    return in_tokens(best);
  }

  [[nodiscard]] Seconds longest_of_tokens(const std::vector<std::int64_t>& tokens) {
    Seconds most;
    std::int64_t before = 0;
    for (const std::int64_t own : tokens) {
      most = std::max(most, asked(before, own));
      before += own;
    }
    return most;
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> even_units() const {
    std::vector<std::int64_t> units;
    for (std::int64_t slice = 0; slice < slices_; ++slice) {
      units.push_back(units_ * (slice + 1) / slices_ - units_ * slice / slices_);
    }
    return units;
  }

  [[nodiscard]] std::vector<std::int64_t> in_tokens(std::vector<std::int64_t> units) const {
    for (std::int64_t& own : units) own *= problem_.multiple;
    units.back() += problem_.sequence % problem_.multiple;
    return units;
  }

  [[nodiscard]] Seconds longest(const std::vector<std::int64_t>& units) { return longest_of_tokens(in_tokens(units)); }

  // The rest of the sequence, less than a multiple, goes with its last unit.
  [[nodiscard]] Seconds of_units(std::int64_t first, std::int64_t count) {
    const std::int64_t rest = first + count == units_ ? problem_.sequence % problem_.multiple : 0;
    return asked(first * problem_.multiple, count * problem_.multiple + rest);
  }

  [[nodiscard]] Seconds asked(std::int64_t before, std::int64_t tokens) {
    const auto [found, is_new] = known_.try_emplace({before, tokens});
    if (is_new) found->second = work_(before, tokens);
    return found->second;
  }

  // Each slice as long as it may be, none: the end is not reached.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> within(Seconds limit) {
    std::vector<std::int64_t> units;
    std::int64_t first = 0;
    for (std::int64_t slice = 0; slice < slices_; ++slice) {
      const std::int64_t left = units_ - first - (slices_ - slice - 1);  // those behind have one each
      const std::int64_t own = most_within(first, left, limit);
      if (own == 0) return std::nullopt;
      units.push_back(own);
      first += own;
    }
    if (first < units_) return std::nullopt;
    return units;
  }

  // The most units, up to `most`, that take no more than `limit` behind the first ones.
  [[nodiscard]] std::int64_t most_within(std::int64_t first, std::int64_t most, Seconds limit) {
    std::int64_t fits = 0;
    std::int64_t exceeds = most + 1;
    while (exceeds - fits > 1) {
      const std::int64_t middle = fits + (exceeds - fits) / 2;
      (of_units(first, middle) <= limit ? fits : exceeds) = middle;
    }
    return fits;
  }

  // Of neighbours the one that takes longer gives units to the other, as long as the longer of the two gets shorter.
  void even_out(std::vector<std::int64_t>& units) {
    const std::int64_t most_rounds = units_ * slices_;
    bool moved = true;
    for (std::int64_t round = 0; moved && round < most_rounds; ++round) {
      moved = false;
      std::int64_t first = 0;
      for (std::size_t slice = 0; slice + 1 < units.size(); ++slice) {
        moved = even_pair(first, units[slice], units[slice + 1]) || moved;
        first += units[slice];
      }
    }
  }

  bool even_pair(std::int64_t first, std::int64_t& left, std::int64_t& right) {
    const auto longer = [&](std::int64_t of_left) {
      return std::max(of_units(first, of_left), of_units(first + of_left, left + right - of_left));
    };
    const bool from_left = of_units(first, left) > of_units(first + left, right);
    const std::int64_t to = from_left ? left - 1 : left + 1;
    if (to < 1 || to >= left + right || !(longer(to) < longer(left))) return false;
    right += left - to;
    left = to;
    return true;
  }

  const SliceProblem& problem_;
  const SliceWork& work_;
  std::int64_t units_;
  std::int64_t slices_;
  std::map<std::pair<std::int64_t, std::int64_t>, Seconds> known_;  // by tokens before, and own
};

}  // namespace

std::vector<std::int64_t> equal_work_slices(const SliceProblem& problem, const SliceWork& work) {
  if (problem.slices < 1 || problem.multiple < 1 || problem.sequence / problem.multiple < problem.slices) {
    throw InputError("slices", "a sequence of " + std::to_string(problem.sequence) + " tokens has no " +
                                   std::to_string(problem.slices) + " slices in multiples of " +
                                   std::to_string(problem.multiple) + " tokens");
  }
  EqualWork search(problem, work);
  std::vector<std::int64_t> found = search.run();
  if (!problem.can_be_equal || problem.sequence % problem.slices != 0) return found;
  const std::vector<std::int64_t> equal(static_cast<std::size_t>(problem.slices), problem.sequence / problem.slices);
  return search.longest_of_tokens(found) < search.longest_of_tokens(equal) ? found : equal;
}

}  // namespace plumb
