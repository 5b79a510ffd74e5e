#include <algorithm>
#include <limits>

#include "common/base/error.hpp"
#include "common/split/chain.hpp"

namespace plumb {
namespace {

using Sums = std::vector<std::int64_t>;  // of the blocks before each block

void require_blocks(const std::vector<std::int64_t>& block_parameters, int stages) {
  require_few_blocks(block_parameters.size());
  if (block_parameters.size() < 2) {
    throw InputError("split",
                     std::to_string(block_parameters.size()) + " blocks: expected at least 2 (embedding, head)");
  }
  if (std::ranges::any_of(block_parameters, [](std::int64_t parameters) { return parameters < 0; })) {
    throw InputError("split", "a block with a negative number of parameters");
  }
  require_stages(static_cast<int>(block_parameters.size()) - 2, stages);
}

// The ends at which a stage that starts at each block has between `least` and `most` parameters.
std::vector<EndWindow> windows_of(const Sums& before, std::int64_t least, std::int64_t most) {
  const int blocks = static_cast<int>(before.size()) - 1;
  std::vector<EndWindow> windows;
  int first = 1;
  int last = 0;
  for (int start = 0; start < blocks; ++start) {
    const auto sum_to = [&](int end) {
      return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(start)];
    };
    first = std::max(first, start + 1);
    while (first <= blocks && sum_to(first) < least) ++first;
    while (last < blocks && sum_to(last + 1) <= most) ++last;
    windows.push_back({first, last});
  }
  return windows;
}

Sums distinct_sums(const Sums& before) {
  Sums sums;
  for (std::size_t start = 0; start < before.size(); ++start) {
    for (std::size_t end = start + 1; end < before.size(); ++end) sums.push_back(before[end] - before[start]);
  }
  std::ranges::sort(sums);
  sums.erase(std::unique(sums.begin(), sums.end()), sums.end());
  return sums;
}

}  // namespace

Split parameter_split(const std::vector<std::int64_t>& block_parameters, int stages) {
  require_blocks(block_parameters, stages);
  const int blocks = static_cast<int>(block_parameters.size());
  Sums before{0};
  for (const std::int64_t parameters : block_parameters) before.push_back(before.back() + parameters);
  const Sums sums = distinct_sums(before);
  const auto try_window = [&](std::int64_t least, std::int64_t most) {
    const std::vector<EndWindow> windows = windows_of(before, least, most);
    const auto window = [&](int, int start) { return windows[static_cast<std::size_t>(start)]; };
    return CutTable(blocks, stages, window).largest_cuts(window);
  };
  // For each smallest stage the smallest possible largest one: as the one grows, so does the other.
  std::vector<int> best;
  std::int64_t best_width = std::numeric_limits<std::int64_t>::max();
  auto most = sums.begin();
  for (const std::int64_t least : sums) {
    if (least > before.back() / stages) break;  // the smallest stage is at most the mean
    auto cuts = try_window(least, *most);
    while (!cuts && ++most != sums.end()) cuts = try_window(least, *most);
    if (!cuts) break;
    if (*most - least < best_width) {
      best_width = *most - least;
      best = std::move(*cuts);
    }
  }
  return split_from_cuts(best);
}

}  // namespace plumb
