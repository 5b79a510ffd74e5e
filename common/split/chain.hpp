// Cutting a chain of blocks into stages when each stage may only end within a window: what the exact splits share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "common/split/split.hpp"

namespace plumb {

// The blocks, counted from 0, before which a stage that starts at a given block may end; none if last < first.
struct EndWindow {
  int first = 0;
  int last = 0;
};

// How far a stage can reach from each start, where every part of a stage that fits fits too; `start` itself: not one
// block fits. `fits(start, end)`. O(blocks) calls.
template <class Fits>
[[nodiscard]] std::vector<int> farthest_ends(int blocks, const Fits& fits) {
  std::vector<int> ends;
  int end = 0;
  for (int start = 0; start < blocks; ++start) {
    end = std::max(end, start);
    while (end < blocks && fits(start, end + 1)) ++end;
    ends.push_back(end);
  }
  return ends;
}

// The same of one start, with few calls of `fits(end)`.
template <class Fits>
[[nodiscard]] int farthest_end(int start, int blocks, const Fits& fits) {
  int low = start;  // fits, or is `start`
  int high = start + 1;
  for (int step = 1; high <= blocks && fits(high); step *= 2) {
    low = high;
    high = low + step;
  }
  high = std::min(high, blocks + 1);  // does not fit
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

// Cuts of which each stage goes as far as it can, one block left for each behind it. As a later start never reaches
// less far, no cuts are ahead of these: where they reach the end they are those with the lexicographically largest
// counts, and where they fall short there are none (`proven`). Only where a stage cannot hold the block that it would
// start with does that not follow.
struct Reach {
  std::vector<int> cuts = {};  // empty: they fall short
  bool proven = true;
};

// `farthest(stage, start)`: the farthest end of a stage, as farthest_end tells it.
template <class Farthest>
[[nodiscard]] Reach reach_of(int blocks, int stages, const Farthest& farthest) {
  Reach reach;
  int start = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int end = std::min(farthest(stage, start), blocks - (stages - stage - 1));
    if (end == start) return {.proven = false};
    reach.cuts.push_back(end);
    start = end;
  }
  if (start < blocks) reach.cuts.clear();
  return reach;
}

// Which cuts can still be completed: can(stage, start) says whether the blocks from `start` on can be cut into the
// stages from `stage` on.
class CutTable {
 public:
  // `window(stage, start)` for every stage and start. O(blocks · stages).
  template <class WindowOf>
  CutTable(int blocks, int stages, const WindowOf& window) : blocks_(blocks), stages_(stages) {
    const auto row = static_cast<std::size_t>(blocks) + 1;
    can_.assign((static_cast<std::size_t>(stages) + 1) * row, 0);
    at(stages, blocks) = 1;
    std::vector<int> reachable_below(row + 1, 0);  // of the stage behind: how many starts < i can be completed
    for (int stage = stages - 1; stage >= 0; --stage) {
      for (int i = 0; i <= blocks; ++i) {
        reachable_below[static_cast<std::size_t>(i) + 1] =
            reachable_below[static_cast<std::size_t>(i)] + at(stage + 1, i);
      }
      for (int start = 0; start < blocks; ++start) {
        const EndWindow ends = window(stage, start);
        if (ends.last < ends.first) continue;
        at(stage, start) = reachable_below[static_cast<std::size_t>(ends.last) + 1] >
                           reachable_below[static_cast<std::size_t>(ends.first)];
      }
    }
  }

  [[nodiscard]] bool can(int stage, int start) const {
    return can_[static_cast<std::size_t>(stage) * (static_cast<std::size_t>(blocks_) + 1) +
                static_cast<std::size_t>(start)] != 0;
  }

  // Ends of all stages, each as far back as can be: the lexicographically largest counts.
  template <class WindowOf>
  [[nodiscard]] std::optional<std::vector<int>> largest_cuts(const WindowOf& window) const {
    if (!can(0, 0)) return std::nullopt;
    std::vector<int> cuts;
    int start = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      int end = window(stage, start).last;
      while (!can(stage + 1, end)) --end;
      cuts.push_back(end);
      start = end;
    }
    return cuts;
  }

 private:
  [[nodiscard]] char& at(int stage, int start) {
    return can_[static_cast<std::size_t>(stage) * (static_cast<std::size_t>(blocks_) + 1) +
                static_cast<std::size_t>(start)];
  }

  int blocks_;
  int stages_;
  std::vector<char> can_;
};

// From the ends of the stages, in blocks, to layers per stage: the embedding and the head are blocks, but no layers.
[[nodiscard]] inline Split split_from_cuts(const std::vector<int>& cuts) {
  Split split;
  int start = 0;
  for (const int end : cuts) {
    split.layers.push_back(end - start);
    start = end;
  }
  --split.layers.front();
  --split.layers.back();
  return split;
}

// Throws InputError for the blocks (embedding, layers, head) of a model that is too long: the exact splits look at all
// pairs of blocks.
void require_few_blocks(std::size_t blocks);

}  // namespace plumb
