#include "common/split/alike_layers.hpp"

#include <algorithm>
#include <numeric>

namespace plumb {

bool AlikeLayers::are(const WeighedChain& chain) {
  for (int block = 2; block + 1 < chain.blocks(); ++block) {
    const bool same = chain.time(block, block + 1) == chain.time(1, 2) &&
                      chain.fixed_bytes(block, block + 1) == chain.fixed_bytes(1, 2) &&
                      chain.kept_bytes(block, block + 1) == chain.kept_bytes(1, 2);
    if (!same) return false;
  }
  return chain.blocks() > 2 && chain.stages() > 1;
}

AlikeLayers::AlikeLayers(const WeighedChain& chain, const CoupledLimits& limits)
    : chain_(chain), limits_(limits), layers_(chain.blocks() - 2), watch_(chain.stop()) {}

std::vector<LayerRange> AlikeLayers::any() const {
  std::vector<LayerRange> ranges(static_cast<std::size_t>(chain_.stages()), {.least = 1, .most = layers_});
  ranges.front().least = 0;
  ranges.back().least = 0;
  return ranges;
}

// What the least counts leave of each limit; false if they exceed one.
bool AlikeLayers::collect_limits(int rank, const std::vector<LayerRange>& ranges) {
  const std::vector<int>& own = chain_.stages_of(rank);
  const std::vector<Moment>& moments = chain_.moments_of(rank);
  const std::size_t count = (limits_.bytes ? moments.size() : 0) + (limits_.time ? 1 : 0);
  takes_.assign(own.size(), std::vector<std::int64_t>(count, 0));
  rooms_.assign(own.size() + 1, std::vector<std::int64_t>(count, 0));
  more_.clear();
  std::vector<std::int64_t>& left = rooms_.front();
  if (limits_.bytes) std::fill_n(left.begin(), moments.size(), *limits_.bytes);
  if (limits_.time) left.back() = *limits_.time;
  for (std::size_t k = 0; k < own.size(); ++k) {
    const LayerRange& range = ranges[static_cast<std::size_t>(own[k])];
    if (range.most < range.least) return false;
    more_.push_back(range.most - range.least);
    const bool last = own[k] + 1 == chain_.stages();
    // Any run of so many layers will do, with the embedding or the head where they are the stage's.
    const int end = last ? chain_.blocks() : 1 + range.least;
    const int start = last ? chain_.blocks() - 1 - range.least : own[k] == 0 ? 0 : 1;
    for (std::size_t n = 0; limits_.bytes && n < moments.size(); ++n) {
      takes_[k][n] = chain_.fixed_bytes(1, 2) + moments[n][k] * chain_.kept_bytes(1, 2);
      left[n] -= chain_.fixed_bytes(start, end) + moments[n][k] * chain_.kept_bytes(start, end);
    }
    if (!limits_.time) continue;
    takes_[k].back() = chain_.time(1, 2);
    left.back() -= chain_.time(start, end);
  }
  return std::ranges::none_of(left, [](std::int64_t bytes) { return bytes < 0; });
}

// How many layers of the next stage alone, up to `most`, keep all limits.
int AlikeLayers::fits_of(std::size_t next, int most) const {
  std::int64_t fit = most;
  for (std::size_t n = 0; n < takes_[next].size(); ++n) {
    if (takes_[next][n] > 0) fit = std::min(fit, room(next, n) / takes_[next][n]);
  }
  return static_cast<int>(fit);
}

// No more than that can be added by the stages from `next` on: each limit as if they all took of it what the least
// demanding does.
int AlikeLayers::bound(std::size_t next) const {
  std::int64_t most = std::accumulate(more_.begin() + static_cast<std::ptrdiff_t>(next), more_.end(), std::int64_t{0});
  for (std::size_t n = 0; n < takes_[next].size(); ++n) {
    std::int64_t least = takes_[next][n];
    for (std::size_t k = next + 1; k < takes_.size(); ++k) least = std::min(least, takes_[k][n]);
    if (least > 0) most = std::min(most, room(next, n) / least);
  }
  return static_cast<int>(most);
}

void AlikeLayers::place(std::size_t next, int placed) {
  watch_.turn();
  steps_ += static_cast<std::int64_t>(takes_[next].size()) + 1;
  if (steps_ > most_steps) throw Unknown();
  const int fit = fits_of(next, more_[next]);
  if (next + 1 == takes_.size()) {
    best_ = std::max(best_, placed + fit);
    return;
  }
  if (placed + bound(next) <= best_) return;
  for (int count = fit; count >= 0 && best_ < enough_; --count) {
    for (std::size_t n = 0; n < takes_[next].size(); ++n) {
      rooms_[next + 1][n] = rooms_[next][n] - takes_[next][n] * count;
    }
    place(next + 1, placed + count);
  }
}

// Layers of all its stages together; `none` if the least counts exceed a limit already.
int AlikeLayers::most_of_rank(int rank, const std::vector<LayerRange>& ranges) {
  if (!collect_limits(rank, ranges)) return none;
  int least = 0;
  for (const int stage : chain_.stages_of(rank)) least += ranges[static_cast<std::size_t>(stage)].least;
  if (takes_.empty()) return 0;
  best_ = 0;
  enough_ = bound(0);
  place(0, 0);
  return least + best_;
}

std::optional<bool> AlikeLayers::possible(const std::vector<LayerRange>& ranges) {
  std::int64_t least = 0;
  for (const LayerRange& range : ranges) least += range.least;
  if (least > layers_) return false;
  steps_ = 0;
  std::int64_t most = 0;
  try {
    for (int rank = 0; rank < chain_.ranks(); ++rank) {
      const int of_rank = most_of_rank(rank, ranges);
      if (of_rank == none) return false;
      most += of_rank;
    }
  } catch (const Unknown&) {
    return std::nullopt;
  }
  return most >= layers_;
}

std::optional<std::vector<int>> AlikeLayers::largest(std::vector<LayerRange> ranges) {
  steps_ = 0;
  try {
    const std::optional<std::vector<int>> found = counts(std::move(ranges));
    if (!found) return std::vector<int>{};
    return cuts_of({.layers = *found});
  } catch (const Unknown&) {
    return std::nullopt;
  }
}

// Stage by stage the most layers with which the others can still hold what is left.
std::optional<std::vector<int>> AlikeLayers::counts(std::vector<LayerRange> ranges) {
  std::vector<int> of_rank;
  for (int rank = 0; rank < chain_.ranks(); ++rank) of_rank.push_back(most_of_rank(rank, ranges));
  if (std::ranges::find(of_rank, none) != of_rank.end()) return std::nullopt;
  int most = std::accumulate(of_rank.begin(), of_rank.end(), 0);
  int least = 0;
  for (const LayerRange& range : ranges) least += range.least;
  if (most < layers_ || least > layers_) return std::nullopt;
  std::vector<int> counts;
  for (int stage = 0; stage < chain_.stages(); ++stage) {
    LayerRange& range = ranges[static_cast<std::size_t>(stage)];
    int& of_own = of_rank[static_cast<std::size_t>(chain_.rank_of(stage))];
    const int of_others = most - of_own;
    const int others_least = least - range.least;
    int count = std::min(range.most, layers_ - others_least);
    for (const int fewest = range.least; count >= fewest; --count) {  // that will do, if no more does
      range = {.least = count, .most = count};
      of_own = most_of_rank(chain_.rank_of(stage), ranges);
      if (of_own != none && of_others + of_own >= layers_) break;
    }
    most = of_others + of_own;
    least = others_least + count;
    counts.push_back(count);
  }
  return counts;
}

}  // namespace plumb
