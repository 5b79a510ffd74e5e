#include "common/split/coupled.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr int multiplier_rounds = 80;
constexpr std::int64_t steps_of_state = 8;      // a state costs as much as these
constexpr std::size_t most_states = 1'000'000;  // at once: some 100 MB
constexpr char16_t unknown = 0xffff;
constexpr double infinite = std::numeric_limits<double>::infinity();

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
                         std::int64_t limit, std::int64_t budget)
    : memory_(memory),
      rank_of_stage_(rank_of_stage),
      stages_(static_cast<int>(rank_of_stage.size())),
      blocks_(static_cast<int>(memory.before.front().size()) - 1),
      ranks_(ranks),
      limit_(limit),
      budget_(budget) {}

std::optional<std::vector<int>> CoupledCuts::any(const StageWindows& windows) {
  Search result = search(windows);
  if (result.finished) return std::move(result.cuts);
  throw InputError("split",
                   "the dynamic split of " + std::to_string(blocks_ - 2) + " layers into " + std::to_string(stages_) +
                       " stages takes too long to prove under this memory limit",
                   "take fewer chunks, or give the split as a list");
}

CoupledCuts::Search CoupledCuts::search(const StageWindows& windows) {
  if (!collect_runs(windows)) return {};
  std::vector<double> multipliers(static_cast<std::size_t>(ranks_), 1.0 / ranks_);
  for (int round = 0; round < multiplier_rounds; ++round) {
    switch (weigh(multipliers)) {
      case Verdict::impossible:
        return {};
      case Verdict::found:
        return {.cuts = cuts_};
      case Verdict::open:
        adapt(multipliers, held(), limit_, round);
    }
  }
  return walk_ranks();
}

// `known` is optimal already; where the search for a larger one would take too long it is the answer, and the steps are
// counted, not timed: the same answer everywhere.
std::vector<int> CoupledCuts::largest(StageWindows windows, std::vector<int> known) {
  int start = 0;
  for (std::size_t stage = 0; stage < known.size(); ++stage) {
    EndWindow& own = windows[stage][static_cast<std::size_t>(start)];
    for (int end = own.last; end > known[stage]; --end) {
      own = {end, end};
      Search longer = search(windows);
      if (!longer.finished) return known;
      if (longer.cuts) {
        known = std::move(*longer.cuts);
        break;
      }
    }
    own = {known[stage], known[stage]};
    start = known[stage];
  }
  return known;
}

// The runs of blocks from which both ends of the chain can be reached.
bool CoupledCuts::collect_runs(const StageWindows& windows) {
  const auto window = [&](int stage, int start) {
    return windows[static_cast<std::size_t>(stage)][static_cast<std::size_t>(start)];
  };
  const CutTable table(blocks_, stages_, window);
  ends_.assign(at(stages_, blocks_) + 1, {});
  if (!table.can(0, 0)) return false;
  std::vector<char> reached(ends_.size(), 0);
  reached[at(0, 0)] = 1;
  for (int stage = 0; stage < stages_; ++stage) {
    for (int start = 0; start < blocks_; ++start) {
      if (reached[at(stage, start)] == 0) continue;
      for (int end = window(stage, start).first; end <= window(stage, start).last; ++end) {
        if (!table.can(stage + 1, end)) continue;
        ends_[at(stage, start)].push_back(end);
        reached[at(stage + 1, end)] = 1;
      }
    }
  }
  return true;
}

// The lightest cuts under these weights; rules out every run that makes all cuts through it too heavy.
CoupledCuts::Verdict CoupledCuts::weigh(const std::vector<double>& multipliers) {
  const auto weight = [&](int stage, int start, int end) {
    return multipliers[rank_of(stage)] * static_cast<double>(memory_.of(stage, start, end));
  };
  to_end_.assign(ends_.size(), infinite);
  from_begin_.assign(ends_.size(), infinite);
  to_end_[at(stages_, blocks_)] = 0;
  from_begin_[at(0, 0)] = 0;
  for (int stage = stages_ - 1; stage >= 0; --stage) {
    for (int start = 0; start < blocks_; ++start) {
      double& least = to_end_[at(stage, start)];
      for (const int end : ends_[at(stage, start)]) {
        least = std::min(least, weight(stage, start, end) + to_end_[at(stage + 1, end)]);
      }
    }
  }
  // The multipliers add up to 1. The margin covers the rounding of these sums.
  const double most = static_cast<double>(limit_) * (1 + 1e-9);
  if (to_end_[at(0, 0)] > most) return Verdict::impossible;
  cuts_.clear();
  for (int stage = 0, start = 0; stage < stages_; ++stage) {
    const auto& ends = ends_[at(stage, start)];
    start = *std::ranges::min_element(ends, {},
                                      [&](int end) { return weight(stage, start, end) + to_end_[at(stage + 1, end)]; });
    cuts_.push_back(start);
  }
  const auto fits = [&](std::int64_t bytes) { return bytes <= limit_; };
  if (std::ranges::all_of(held(), fits)) return Verdict::found;
  for (int stage = 0; stage < stages_; ++stage) {
    for (int start = 0; start < blocks_; ++start) {
      const double before = from_begin_[at(stage, start)];
      std::erase_if(ends_[at(stage, start)], [&](int end) {
        const double with = before + weight(stage, start, end);
        if (!(with + to_end_[at(stage + 1, end)] <= most)) return true;
        from_begin_[at(stage + 1, end)] = std::min(from_begin_[at(stage + 1, end)], with);
        return false;
      });
    }
  }
  return Verdict::open;
}

std::vector<std::int64_t> CoupledCuts::held() const {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(ranks_), 0);
  for (int stage = 0, start = 0; stage < stages_; ++stage) {
    const int end = cuts_[static_cast<std::size_t>(stage)];
    bytes[rank_of(stage)] += memory_.of(stage, start, end);
    start = end;
  }
  return bytes;
}

// The cuts (cut k ends stage k − 1) between a stage of a rank up to `rank` and one of a rank behind it.
std::vector<int> CoupledCuts::frontier_after(int rank) const {
  std::vector<int> cuts;
  for (int cut = 1; cut < stages_; ++cut) {
    const bool before_done = static_cast<int>(rank_of(cut - 1)) <= rank;
    const bool behind_done = static_cast<int>(rank_of(cut)) <= rank;
    if (before_done != behind_done) cuts.push_back(cut);
  }
  return cuts;
}

// Places the stages `own[next…]` of one rank in all ways that agree with the cuts known so far, until a visit returns
// false or the budget is used up, which is returned.
template <class Visit>
bool CoupledCuts::place_rank(const std::vector<int>& own, std::size_t next, std::int64_t bytes, Positions& cuts,
                             const Visit& visit) {
  if (bytes > limit_) return true;
  if (next == own.size()) return visit();
  const int stage = own[next];
  const auto begin = static_cast<std::size_t>(stage);
  const char16_t known_start = cuts[begin];
  const char16_t known_end = cuts[begin + 1];
  const int first = known_start == unknown ? 0 : known_start;
  const int last = known_start == unknown ? blocks_ - 1 : known_start;
  for (int start = first; start <= last; ++start) {
    cuts[begin] = static_cast<char16_t>(start);
    for (const int end : ends_[at(stage, start)]) {
      if (known_end != unknown && known_end != end) continue;
      if (++steps_ > budget_) return false;
      cuts[begin + 1] = static_cast<char16_t>(end);
      if (!place_rank(own, next + 1, bytes + memory_.of(stage, start, end), cuts, visit)) return false;
    }
  }
  cuts[begin] = known_start;
  cuts[begin + 1] = known_end;
  return true;
}

CoupledCuts::Search CoupledCuts::walk_ranks() {
  Positions none(static_cast<std::size_t>(stages_) + 1, unknown);
  none.front() = 0;
  none.back() = static_cast<char16_t>(blocks_);
  // By the positions at the frontier, one way to get there.
  std::unordered_map<Positions, Positions> ways{{Positions{}, none}};
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<int> own;
    for (int stage = 0; stage < stages_; ++stage) {
      if (static_cast<int>(rank_of(stage)) == rank) own.push_back(stage);
    }
    const std::vector<int> frontier = frontier_after(rank);
    std::unordered_map<Positions, Positions> further;
    for (auto& way : ways) {
      Positions& cuts = way.second;
      const bool finished = place_rank(own, 0, 0, cuts, [&] {
        steps_ += steps_of_state;
        Positions positions;
        for (const int cut : frontier) positions += cuts[static_cast<std::size_t>(cut)];
        further.try_emplace(std::move(positions), cuts);
        return further.size() <= most_states;
      });
      if (!finished) return {.finished = false};
    }
    ways = std::move(further);
  }
  if (ways.empty()) return {};
  const Positions& cuts = ways.begin()->second;
  return {.cuts = std::vector<int>(cuts.begin() + 1, cuts.end())};
}

}  // namespace plumb
