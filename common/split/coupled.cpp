#include "common/split/coupled.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr int multiplier_rounds = 60;
constexpr std::size_t most_remembered = 64;   // per state; forgetting costs time, not exactness
constexpr std::int64_t most_states = 20'000;  // some seconds

// Moves weight to the ranks that hold too much (multiplicative weights, a smaller step each round).
void adapt(std::vector<double>& multipliers, const std::vector<std::int64_t>& held, std::int64_t limit, int round) {
  double largest = 1;
  for (const std::int64_t bytes : held) largest = std::max(largest, std::abs(static_cast<double>(bytes - limit)));
  double sum = 0;
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    const double excess = static_cast<double>(held[rank] - limit) / largest;
    multipliers[rank] *= std::exp(excess * 2 / std::sqrt(round + 1.0));
    sum += multipliers[rank];
  }
  for (double& multiplier : multipliers) multiplier /= sum;
}

}  // namespace

CoupledCuts::CoupledCuts(const StageMemory& memory, const std::vector<int>& rank_of_stage, int ranks,
                         std::int64_t limit)
    : memory_(memory),
      rank_of_stage_(rank_of_stage),
      stages_(static_cast<int>(rank_of_stage.size())),
      blocks_(static_cast<int>(memory.before.front().size()) - 1),
      limit_(limit),
      last_stage_of_rank_(static_cast<std::size_t>(ranks), -1) {
  for (int stage = 0; stage < stages_; ++stage) last_stage_of_rank_[rank_of(stage)] = stage;
  weight_.resize(state_index(stages_, blocks_) + 1);
  next_.resize(weight_.size());
}

void CoupledCuts::begin(const CutTable& table, const std::vector<std::vector<EndWindow>>& windows) {
  table_ = &table;
  windows_ = &windows;
  failed_.assign(weight_.size(), {});
}

std::optional<std::vector<int>> CoupledCuts::any(const CutTable& table,
                                                 const std::vector<std::vector<EndWindow>>& windows) {
  begin(table, windows);
  if (!table.can(0, 0)) return std::nullopt;
  const std::size_t ranks = last_stage_of_rank_.size();
  return complete(0, 0, Memory(ranks, 0), std::vector<double>(ranks, 1.0 / static_cast<double>(ranks)));
}

std::vector<int> CoupledCuts::largest(const CutTable& table, const std::vector<std::vector<EndWindow>>& windows,
                                      std::vector<int> known) {
  begin(table, windows);
  const std::size_t ranks = last_stage_of_rank_.size();
  const std::vector<double> even(ranks, 1.0 / static_cast<double>(ranks));
  Memory used(ranks, 0);
  int start = 0;
  for (int stage = 0; stage < stages_; ++stage) {
    // Longer than the known cuts, if anything behind such a stage can be completed.
    const auto at = static_cast<std::size_t>(stage);
    for (int end = windows[at][static_cast<std::size_t>(start)].last; end > known[at]; --end) {
      if (!table.can(stage + 1, end)) continue;
      Memory with = used;
      with[rank_of(stage)] += memory_.of(stage, start, end);
      if (with[rank_of(stage)] > limit_) continue;
      if (const auto rest = complete(stage + 1, end, with, even)) {
        known[at] = end;
        std::ranges::copy(*rest, known.begin() + stage + 1);
        break;
      }
    }
    used[rank_of(stage)] += memory_.of(stage, start, known[at]);
    start = known[at];
  }
  return known;
}

// Cuts of the stages from `stage` on, or none.
std::optional<std::vector<int>> CoupledCuts::complete(int stage, int start, const Memory& used,
                                                      std::vector<double> multipliers) {
  if (stage == stages_) return std::vector<int>{};
  if (has_failed(stage, start, used)) return std::nullopt;
  count_state();
  for (std::size_t rank = 0; rank < multipliers.size(); ++rank) {
    if (!is_open(rank, stage)) multipliers[rank] = 0;
  }
  for (int round = 0; round < multiplier_rounds; ++round) {
    Cheapest best = cheapest(stage, start, multipliers);
    double weighted_free = 0;
    for (std::size_t rank = 0; rank < multipliers.size(); ++rank) {
      weighted_free += multipliers[rank] * static_cast<double>(limit_ - used[rank]);
    }
    // The margin covers the rounding of these sums.
    if (best.weight > weighted_free + 1e-9 * static_cast<double>(limit_)) {
      remember_failure(stage, start, used);
      return std::nullopt;
    }
    const Memory then = held(stage, start, used, best.cuts);
    if (std::ranges::all_of(then, [&](std::int64_t bytes) { return bytes <= limit_; })) return std::move(best.cuts);
    adapt(multipliers, then, limit_, round);
  }
  return branch(stage, start, used, multipliers);
}

std::optional<std::vector<int>> CoupledCuts::branch(int stage, int start, const Memory& used,
                                                    const std::vector<double>& multipliers) {
  const EndWindow ends = (*windows_)[static_cast<std::size_t>(stage)][static_cast<std::size_t>(start)];
  for (int end = ends.last; end >= ends.first; --end) {
    if (!table_->can(stage + 1, end)) continue;
    Memory with = used;
    with[rank_of(stage)] += memory_.of(stage, start, end);
    if (with[rank_of(stage)] > limit_) continue;
    if (auto rest = complete(stage + 1, end, with, multipliers)) {
      rest->insert(rest->begin(), end);
      return rest;
    }
  }
  remember_failure(stage, start, used);
  return std::nullopt;
}

// The cuts from here on whose memory, weighted by the multipliers of the ranks, is least: from the back to the front.
CoupledCuts::Cheapest CoupledCuts::cheapest(int stage, int start, const std::vector<double>& multipliers) {
  weight_[state_index(stages_, blocks_)] = 0;
  for (int s = stages_ - 1; s >= stage; --s) {
    const double multiplier = multipliers[rank_of(s)];
    const int from = s == stage ? start : start + s - stage;
    const int until = s == stage ? start : blocks_ - 1;
    for (int i = from; i <= until; ++i) {
      if (!table_->can(s, i)) continue;
      const EndWindow ends = (*windows_)[static_cast<std::size_t>(s)][static_cast<std::size_t>(i)];
      double least = std::numeric_limits<double>::infinity();
      for (int end = ends.first; end <= ends.last; ++end) {
        if (!table_->can(s + 1, end)) continue;
        const double weight =
            weight_[state_index(s + 1, end)] + multiplier * static_cast<double>(memory_.of(s, i, end));
        if (weight < least) {
          least = weight;
          next_[state_index(s, i)] = end;
        }
      }
      weight_[state_index(s, i)] = least;
    }
  }
  Cheapest result{.weight = weight_[state_index(stage, start)], .cuts = {}};
  for (int s = stage, i = start; s < stages_; ++s) result.cuts.push_back(i = next_[state_index(s, i)]);
  return result;
}

CoupledCuts::Memory CoupledCuts::held(int stage, int start, Memory used, const std::vector<int>& cuts) const {
  for (const int end : cuts) {
    used[rank_of(stage)] += memory_.of(stage, start, end);
    start = end;
    ++stage;
  }
  return used;
}

// Whether the rank has a stage to come; what the others hold does not matter any more.
bool CoupledCuts::is_open(std::size_t rank, int stage) const { return last_stage_of_rank_[rank] >= stage; }

bool CoupledCuts::no_less(int stage, const Memory& a, const Memory& b) const {
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    if (is_open(rank, stage) && a[rank] < b[rank]) return false;
  }
  return true;
}

bool CoupledCuts::has_failed(int stage, int start, const Memory& used) const {
  const auto& failed = failed_[state_index(stage, start)];
  return std::ranges::any_of(failed, [&](const Memory& other) { return no_less(stage, used, other); });
}

void CoupledCuts::remember_failure(int stage, int start, const Memory& used) {
  auto& failed = failed_[state_index(stage, start)];
  std::erase_if(failed, [&](const Memory& other) { return no_less(stage, other, used); });
  if (failed.size() < most_remembered) failed.push_back(used);
}

void CoupledCuts::count_state() {
  if (++states_ <= most_states) return;
  throw InputError("split",
                   "the dynamic split of " + std::to_string(blocks_ - 2) + " layers into " + std::to_string(stages_) +
                       " stages takes too long to prove under this memory limit",
                   "take fewer chunks, or give the split as a list");
}

}  // namespace plumb
