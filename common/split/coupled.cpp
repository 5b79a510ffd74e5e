#include "common/split/coupled.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

namespace plumb {
namespace {

constexpr int multiplier_rounds = 80;
constexpr std::int64_t steps_of_state = 8;      // a state costs as much as these
constexpr std::int64_t runs_of_step = 4;        // that many runs of blocks are weighed in one
constexpr std::size_t moments_of_step = 8;      // that many are added up in one
constexpr std::size_t most_states = 1'000'000;  // at once: some 100 MB
constexpr char16_t unknown = 0xffff;
constexpr double infinite = std::numeric_limits<double>::infinity();

// Moves weight to the limits that are exceeded most (multiplicative weights, a smaller step each round).
void adapt(std::vector<double>& multipliers, const std::vector<double>& excess, int round) {
  double largest = 0;
  for (const double by : excess) largest = std::max(largest, std::abs(by));
  if (largest == 0) return;
  double sum = 0;
  for (std::size_t limit = 0; limit < excess.size(); ++limit) {
    multipliers[limit] *= std::exp(excess[limit] / largest * 2 / std::sqrt(round + 1.0));
    sum += multipliers[limit];
  }
  for (double& multiplier : multipliers) multiplier /= sum;
}

}  // namespace

std::int64_t runs_of(const StageWindows& windows) {
  std::int64_t runs = 0;
  for (const auto& of_stage : windows) {
    for (const EndWindow& window : of_stage) runs += std::max(window.last - window.first + 1, 0);
  }
  return runs;
}

CoupledCuts::CoupledCuts(const WeighedChain& chain, const CoupledLimits& limits, std::int64_t budget)
    : chain_(chain),
      limits_(limits),
      stages_(chain.stages()),
      blocks_(chain.blocks()),
      budget_(budget),
      watch_(chain.stop()) {
  for (int rank = 0; rank < chain.ranks(); ++rank) add_limits_of(rank);
}

void CoupledCuts::add_limits_of(int rank) {
  const auto add = [&](const Moment* moment, int working, std::int64_t most) {
    const double scale = std::max(static_cast<double>(most), 1.0);
    all_limits_.push_back({.rank = rank,
                           .moment = moment,
                           .working = working,
                           .most = static_cast<double>(most) / scale,
                           .scale = scale});
  };
  if (limits_.time) add(nullptr, WeighedChain::nobody, *limits_.time);
  if (!limits_.bytes) return;
  const std::int64_t most = *limits_.bytes - chain_.reserve(rank);
  for (const Moment& moment : chain_.moments_of(rank)) {
    chain_.for_each_working(moment, [&](int working) { add(&moment, working, most); });
  }
}

std::optional<std::vector<int>> CoupledCuts::any(const StageWindows& windows) {
  Search result = search(windows);
  if (result.finished) return std::move(result.cuts);
  throw TooLongToProve("split",
                       "the dynamic split of " + std::to_string(blocks_ - 2) + " layers into " +
                           std::to_string(stages_) + " stages takes too long to prove under this memory limit",
                       "take fewer chunks, or give the split as a list");
}

CoupledCuts::Search CoupledCuts::search(const StageWindows& windows) {
  const std::int64_t steps_of_round = runs_of(windows) / runs_of_step;
  if (steps_ + steps_of_round > budget_) return {.finished = false};  // before the runs take memory
  if (!collect_runs(windows)) return {};
  std::vector<double> multipliers(all_limits_.size(), 1.0 / static_cast<double>(all_limits_.size()));
  for (int round = 0; round < multiplier_rounds; ++round) {
    steps_ += steps_of_round;
    if (chain_.stop() != nullptr) chain_.stop()->check();
    if (steps_ > budget_) return {.finished = false};
    switch (weigh(multipliers)) {
      case Verdict::impossible:
        return {};
      case Verdict::found:
        return {.cuts = cuts_};
      case Verdict::open:
        adapt(multipliers, excess(), round);
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

// A run's weight is the sum of what it takes of each limit of its rank, times that limit's multiplier.
void CoupledCuts::spread(const std::vector<double>& multipliers) {
  fixed_weight_.assign(static_cast<std::size_t>(chain_.ranks()), 0);
  time_weight_ = fixed_weight_;
  kept_weight_.assign(static_cast<std::size_t>(stages_), 0);
  working_weight_ = kept_weight_;
  for (std::size_t n = 0; n < all_limits_.size(); ++n) {
    const Limit& limit = all_limits_[n];
    const double each = multipliers[n] / limit.scale;
    if (limit.moment == nullptr) {
      time_weight_[static_cast<std::size_t>(limit.rank)] += each;
      continue;
    }
    fixed_weight_[static_cast<std::size_t>(limit.rank)] += each;
    const std::span<const int> own = chain_.stages_of(limit.rank);
    for (std::size_t k = 0; k < own.size(); ++k) {
      kept_weight_[static_cast<std::size_t>(own[k])] += each * (*limit.moment)[k];
    }
    if (limit.working == WeighedChain::nobody) continue;
    working_weight_[static_cast<std::size_t>(own[static_cast<std::size_t>(limit.working)])] += each;
  }
}

double CoupledCuts::weight(int stage, int start, int end) const {
  const auto rank = static_cast<std::size_t>(chain_.rank_of(stage));
  return fixed_weight_[rank] * static_cast<double>(chain_.fixed_bytes(start, end)) +
         kept_weight_[static_cast<std::size_t>(stage)] * static_cast<double>(chain_.kept_bytes(start, end)) +
         working_weight_[static_cast<std::size_t>(stage)] * static_cast<double>(chain_.workspace(start, end)) +
         time_weight_[rank] * static_cast<double>(chain_.time(start, end));
}

// The lightest cuts under these weights; rules out every run that makes all cuts through it too heavy.
CoupledCuts::Verdict CoupledCuts::weigh(const std::vector<double>& multipliers) {
  spread(multipliers);
  to_end_.assign(ends_.size(), infinite);
  to_end_[at(stages_, blocks_)] = 0;
  for (int stage = stages_ - 1; stage >= 0; --stage) {
    for (int start = 0; start < blocks_; ++start) {
      double& least = to_end_[at(stage, start)];
      for (const int end : ends_[at(stage, start)]) {
        least = std::min(least, weight(stage, start, end) + to_end_[at(stage + 1, end)]);
      }
    }
  }
  // The multipliers add up to 1. The margin covers the rounding of these sums.
  double most = 0;
  for (std::size_t n = 0; n < all_limits_.size(); ++n) most += multipliers[n] * all_limits_[n].most;
  most += std::abs(most) * 1e-9;
  if (to_end_[at(0, 0)] > most) return Verdict::impossible;
  cuts_.clear();
  for (int stage = 0, start = 0; stage < stages_; ++stage) {
    const auto& ends = ends_[at(stage, start)];
    start = *std::ranges::min_element(ends, {},
                                      [&](int end) { return weight(stage, start, end) + to_end_[at(stage + 1, end)]; });
    cuts_.push_back(start);
  }
  if (fits()) return Verdict::found;
  rule_out(most);
  return Verdict::open;
}

void CoupledCuts::rule_out(double most) {
  from_begin_.assign(ends_.size(), infinite);
  from_begin_[at(0, 0)] = 0;
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
}

bool CoupledCuts::fits() const {
  for (int rank = 0; rank < chain_.ranks(); ++rank) {
    if (limits_.bytes && chain_.rank_bytes(rank, cuts_) > *limits_.bytes) return false;
    if (limits_.time && chain_.rank_time(rank, cuts_) > *limits_.time) return false;
  }
  return true;
}

// Of the lightest cuts, by limit and in units of its scale; negative where there is room.
std::vector<double> CoupledCuts::excess() const {
  std::vector<double> over;
  for (const Limit& limit : all_limits_) {
    const std::int64_t taken = limit.moment == nullptr
                                   ? chain_.rank_time(limit.rank, cuts_)
                                   : chain_.working_bytes(limit.rank, *limit.moment, limit.working, cuts_);
    over.push_back(static_cast<double>(taken) / limit.scale - limit.most);
  }
  return over;
}

// The cuts (cut k ends stage k − 1) between a stage of a rank up to `rank` and one of a rank behind it.
std::vector<int> CoupledCuts::frontier_after(int rank) const {
  std::vector<int> cuts;
  for (int cut = 1; cut < stages_; ++cut) {
    const bool before_done = chain_.rank_of(cut - 1) <= rank;
    const bool behind_done = chain_.rank_of(cut) <= rank;
    if (before_done != behind_done) cuts.push_back(cut);
  }
  return cuts;
}

// Adds a run of blocks as the `next` stage of its rank; false if that exceeds a limit.
bool CoupledCuts::place_stage(int rank, std::size_t next, int start, int end) {
  const Placed& before = placed_[next];
  Placed& with = placed_[next + 1];
  with.time = before.time + chain_.time(start, end);
  if (limits_.time && with.time > *limits_.time) return false;
  if (!limits_.bytes) return true;
  const std::vector<Moment>& moments = chain_.moments_of(rank);
  const std::int64_t fixed = chain_.fixed_bytes(start, end);
  const std::int64_t kept = chain_.kept_bytes(start, end);
  const std::int64_t workspace = chain_.workspace(start, end);
  const std::int64_t most = *limits_.bytes - chain_.reserve(rank);
  bool fits = true;
  for (std::size_t n = 0; n < moments.size(); ++n) {
    const int held = moments[n][next];
    with.bytes[n] = before.bytes[n] + fixed + held * kept;
    with.workspace[n] = std::max(before.workspace[n], held > 0 ? workspace : 0);
    fits = fits && with.bytes[n] + with.workspace[n] <= most;
  }
  steps_ += static_cast<std::int64_t>(moments.size() / moments_of_step);
  return fits;
}

// Places the stages of one rank from its `next` on in all ways that agree with the cuts known so far, until a visit
// returns false or the budget is used up, which is returned.
template <class Visit>
bool CoupledCuts::place_rank(int rank, std::size_t next, Positions& cuts, const Visit& visit) {
  const std::span<const int> own = chain_.stages_of(rank);
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
      watch_.turn();
      if (!place_stage(rank, next, start, end)) break;  // longer ones take no less
      cuts[begin + 1] = static_cast<char16_t>(end);
      if (!place_rank(rank, next + 1, cuts, visit)) return false;
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
  std::unordered_map<Positions, Positions> found{{Positions{}, none}};
  for (int rank = 0; rank < chain_.ranks(); ++rank) {
    const std::size_t moments = limits_.bytes ? chain_.moments_of(rank).size() : 0;
    const std::vector<std::int64_t> nothing(moments, 0);
    placed_.assign(chain_.stages_of(rank).size() + 1, {.bytes = nothing, .workspace = nothing});
    const std::vector<int> frontier = frontier_after(rank);
    std::unordered_map<Positions, Positions> further;
    for (auto& way : found) {
      Positions& cuts = way.second;
      const bool finished = place_rank(rank, 0, cuts, [&] {
        steps_ += steps_of_state;
        Positions positions;
        for (const int cut : frontier) positions += cuts[static_cast<std::size_t>(cut)];
        further.try_emplace(std::move(positions), cuts);
        return further.size() <= most_states;
      });
      if (!finished) return {.finished = false};
    }
    found = std::move(further);
  }
  if (found.empty()) return {};
  const Positions& cuts = found.begin()->second;
  return {.cuts = std::vector<int>(cuts.begin() + 1, cuts.end())};
}

}  // namespace plumb
