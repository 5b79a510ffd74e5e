#include "common/split/equal_layers.hpp"

#include <algorithm>
#include <numeric>

namespace plumb {

bool EqualLayers::are(const WeighedChain& chain) {
  for (int block = 2; block + 1 < chain.blocks(); ++block) {
    if (!chain.alike(block, 1)) return false;
  }
  return chain.blocks() > 2 && chain.stages() > 1;
}

EqualLayers::EqualLayers(const WeighedChain& chain, const CoupledLimits& limits)
    : chain_(chain), limits_(limits), layers_(chain.blocks() - 2), watch_(chain.stop()) {}

std::vector<LayerRange> EqualLayers::any() const {
  std::vector<LayerRange> ranges(static_cast<std::size_t>(chain_.stages()), {.least = 1, .most = layers_});
  ranges.front().least = 0;
  ranges.back().least = 0;
  return ranges;
}

void EqualLayers::add_limits_of(int rank) {
  moments_.clear();
  working_.clear();
  const auto add = [this](const Moment* moment, int working) {
    moments_.push_back(moment);
    working_.push_back(working);
  };
  if (limits_.bytes) {
    for (const Moment& moment : chain_.moments_of(rank)) {
      chain_.for_each_working(moment, [&](int working) { add(&moment, working); });
    }
  }
  if (limits_.time) add(nullptr, WeighedChain::nobody);
}

// Any run of so many layers will do, with the embedding or the head where they are the stage's.
BlockRange EqualLayers::blocks_of(int stage, int layers) const {
  if (stage + 1 == chain_.stages()) return {chain_.blocks() - 1 - layers, chain_.blocks()};
  return {stage == 0 ? 0 : 1, 1 + layers};
}

void EqualLayers::collect_stage(int stage, std::size_t place, const LayerRange& range) {
  const auto workspace = [&](int layers) {
    const BlockRange run = blocks_of(stage, layers);
    return chain_.workspace(run.first, run.last);
  };
  const BlockRange least = blocks_of(stage, range.least);
  const std::int64_t of_least = workspace(range.least);
  std::int64_t shrinks = 0;  // by a layer at most
  more_.push_back(range.most - range.least);
  std::vector<std::int64_t>& more = more_workspace_.emplace_back(1, 0);
  for (int count = 1; chain_.has_workspaces() && count <= more_.back(); ++count) {
    more.push_back(workspace(range.least + count) - of_least);
    shrinks = std::max(shrinks, (-more.back() + count - 1) / count);
  }
  more.resize(static_cast<std::size_t>(more_.back()) + 1, 0);
  for (std::size_t n = 0; n < moments_.size(); ++n) {
    const bool works = working_[n] == static_cast<int>(place);
    std::int64_t& left = rooms_.front()[n];
    std::int64_t& takes = takes_[place][n];
    if (moments_[n] == nullptr) {
      takes = chain_.time(1, 2);
      left -= chain_.time(least.first, least.last);
    } else {
      const int held = (*moments_[n])[place];
      takes = chain_.fixed_bytes(1, 2) + held * chain_.kept_bytes(1, 2);
      left -= chain_.fixed_bytes(least.first, least.last) + held * chain_.kept_bytes(least.first, least.last) +
              (works ? of_least : 0);
    }
    least_takes_[place][n] = takes - (works ? shrinks : 0);
  }
}

// What the least counts leave of each limit; false if they exceed one.
bool EqualLayers::collect_limits(int rank, const std::vector<LayerRange>& ranges) {
  const std::span<const int> own = chain_.stages_of(rank);
  add_limits_of(rank);
  takes_.assign(own.size(), std::vector<std::int64_t>(moments_.size(), 0));
  least_takes_ = takes_;
  rooms_.assign(own.size() + 1, std::vector<std::int64_t>(moments_.size(), 0));
  more_.clear();
  more_workspace_.clear();
  for (std::size_t n = 0; n < moments_.size(); ++n) {
    rooms_.front()[n] = moments_[n] == nullptr ? *limits_.time : *limits_.bytes - chain_.reserve(rank);
  }
  for (std::size_t k = 0; k < own.size(); ++k) {
    LayerRange range = ranges[static_cast<std::size_t>(own[k])];
    range.most = std::min(range.most, layers_);  // there are no more to weigh
    if (range.most < range.least) return false;
    collect_stage(own[k], k, range);
  }
  return std::ranges::none_of(rooms_.front(), [](std::int64_t left) { return left < 0; });
}

// How many layers of the next stage alone, up to `most`, keep all limits.
int EqualLayers::fits_of(std::size_t next, int most) const {
  std::int64_t fit = most;
  for (std::size_t n = 0; n < takes_[next].size(); ++n) {
    if (working_[n] != static_cast<int>(next)) {
      if (takes_[next][n] > 0) fit = std::min(fit, room(next, n) / takes_[next][n]);
      continue;
    }
    // More layers never take less.
    std::int64_t too_many = fit + 1;
    for (fit = 0; too_many - fit > 1;) {
      const std::int64_t middle = fit + (too_many - fit) / 2;
      (taken(next, n, middle) <= room(next, n) ? fit : too_many) = middle;
    }
  }
  return static_cast<int>(fit);
}

// No more than that can be added by the stages from `next` on: each limit as if they all took of it what the least
// demanding does.
int EqualLayers::bound(std::size_t next) const {
  std::int64_t most = std::accumulate(more_.begin() + static_cast<std::ptrdiff_t>(next), more_.end(), std::int64_t{0});
  for (std::size_t n = 0; n < takes_[next].size(); ++n) {
    std::int64_t least = least_takes_[next][n];
    for (std::size_t k = next + 1; k < takes_.size(); ++k) least = std::min(least, least_takes_[k][n]);
    if (least > 0) most = std::min(most, room(next, n) / least);
  }
  return static_cast<int>(most);
}

void EqualLayers::place(std::size_t next, int placed) {
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
      rooms_[next + 1][n] = rooms_[next][n] - taken(next, n, count);
    }
    place(next + 1, placed + count);
  }
}

// Layers of all its stages together; `none` if the least counts exceed a limit already.
int EqualLayers::most_of_rank(int rank, const std::vector<LayerRange>& ranges) {
  if (!collect_limits(rank, ranges)) return none;
  int least = 0;
  for (const int stage : chain_.stages_of(rank)) least += ranges[static_cast<std::size_t>(stage)].least;
  if (takes_.empty()) return 0;
  best_ = 0;
  enough_ = bound(0);
  place(0, 0);
  return least + best_;
}

std::optional<bool> EqualLayers::possible(const std::vector<LayerRange>& ranges) {
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

std::optional<std::vector<int>> EqualLayers::largest(std::vector<LayerRange> ranges) {
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
std::optional<std::vector<int>> EqualLayers::counts(std::vector<LayerRange> ranges) {
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
