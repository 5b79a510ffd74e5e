#include "common/search/split_proof.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "common/base/stop.hpp"

namespace plumb {
namespace {

constexpr int most_rounds = 60;
constexpr double proof_rounding = 1e-9;                   // relative difference of sums in another order
constexpr std::size_t most_runs = 400'000;                // over all stages: some 10 MB
constexpr std::size_t most_nodes = std::size_t{1} << 21;  // nodes of a path's graph: some milliseconds a round
constexpr double infinite = std::numeric_limits<double>::infinity();

void mix(std::vector<double>& into, const std::vector<double>& pick, double part) {
  for (std::size_t n = 0; n < into.size(); ++n) into[n] += part * (pick[n] - into[n]);
}

}  // namespace

SplitProof::SplitProof(const CompiledGraph& compiled, int more, const WeighedChain& chain,
                       const SplitDurations& durations)
    : compiled_(compiled), more_(more), chain_(chain), of_(durations) {}

bool SplitProof::is_small_enough() const {
  std::size_t nodes = compiled_.nodes.size();
  for (const CompiledLoop& loop : compiled_.loops) nodes += static_cast<std::size_t>(more_) * loop.size;
  const auto free = static_cast<std::size_t>(chain_.blocks() - chain_.stages()) + 1;
  return nodes <= most_nodes && free * (free + 1) / 2 * static_cast<std::size_t>(chain_.stages()) <= most_runs;
}

std::size_t SplitProof::place(const Runs& runs, std::size_t kinds, int start, int end) const {
  const auto width = static_cast<std::size_t>(runs.last_end - runs.first_start);
  const auto row = static_cast<std::size_t>(start - runs.first_start);
  return (row * width + static_cast<std::size_t>(end - 1 - runs.first_start)) * kinds;
}

void SplitProof::measure_runs() {
  const int stages = chain_.stages();
  const int blocks = chain_.blocks();
  for (int stage = 0; stage < stages; ++stage) {
    const std::size_t kinds = of_.kinds[static_cast<std::size_t>(stage)].size();
    Runs& runs = runs_.emplace_back();
    const bool first = stage == 0;
    const bool last = stage + 1 == stages;
    runs = {.first_start = stage,
            .last_start = first ? 0 : blocks - (stages - stage),
            .last_end = blocks - (stages - stage - 1)};
    const auto rows = static_cast<std::size_t>(runs.last_start - runs.first_start) + 1;
    runs.seconds.resize(rows * static_cast<std::size_t>(runs.last_end - runs.first_start) * kinds);
    for (int start = runs.first_start; start <= runs.last_start; ++start) {
      look_at_stop();
      for (int end = last ? blocks : start + 1; end <= runs.last_end; ++end) {
        of_.of_run(stage, start, end, runs.seconds.data() + place(runs, kinds, start, end));
      }
    }
  }
}

double SplitProof::weight(const Mixture& mixture, int stage, int start, int end) const {
  const auto own = static_cast<std::size_t>(stage);
  const std::vector<std::size_t>& kinds = of_.kinds[own];
  const double* const seconds = runs_[own].seconds.data() + place(runs_[own], kinds.size(), start, end);
  double sum = 0;
  for (std::size_t n = 0; n < kinds.size(); ++n) sum += mixture.passes[kinds[n]] * seconds[n];
  const auto rank = static_cast<std::size_t>(chain_.rank_of(stage));
  return sum + mixture.fixed[rank] * static_cast<double>(chain_.fixed_bytes(start, end)) +
         mixture.kept[own] * static_cast<double>(chain_.kept_bytes(start, end));
}

// Finds the lightest cuts; their weight above what is allowed.
double SplitProof::lightest(const Mixture& mixture) {
  const int stages = chain_.stages();
  const int blocks = chain_.blocks();
  to_end_.assign(static_cast<std::size_t>(stages) + 1,
                 std::vector<double>(static_cast<std::size_t>(blocks) + 1, infinite));
  std::vector<std::vector<int>> best(static_cast<std::size_t>(stages),
                                     std::vector<int>(static_cast<std::size_t>(blocks) + 1));
  to_end_.back().back() = 0;
  for (int stage = stages - 1; stage >= 0; --stage) {
    const auto own = static_cast<std::size_t>(stage);
    const Runs& runs = runs_[own];
    for (int start = runs.first_start; start <= runs.last_start; ++start) {
      double& least = to_end_[own][static_cast<std::size_t>(start)];
      for (int end = stage + 1 == stages ? blocks : start + 1; end <= runs.last_end; ++end) {
        const double with = weight(mixture, stage, start, end) + to_end_[own + 1][static_cast<std::size_t>(end)];
        if (!(with < least)) continue;
        least = with;
        best[own][static_cast<std::size_t>(start)] = end;
      }
    }
  }
  cuts_.clear();
  for (std::size_t stage = 0; stage < best.size(); ++stage) {
    cuts_.push_back(best[stage][static_cast<std::size_t>(stage == 0 ? 0 : cuts_.back())]);
  }
  double outside = 0;
  for (std::size_t kind = 0; kind < of_.fixed.size(); ++kind) outside += mixture.passes[kind] * of_.fixed[kind];
  return to_end_.front().front() + outside - mixture.allowed;
}

void SplitProof::set_durations() {
  durations_ = of_.fixed;
  for (int stage = 0; stage < chain_.stages(); ++stage) {
    const auto own = static_cast<std::size_t>(stage);
    const std::vector<std::size_t>& kinds = of_.kinds[own];
    const std::size_t at = place(runs_[own], kinds.size(), start_of(cuts_, stage), cuts_[own]);
    for (std::size_t n = 0; n < kinds.size(); ++n) durations_[kinds[n]] = runs_[own].seconds[at + n];
  }
}

double SplitProof::worst(double at_most, CompiledTimes& times, Mixture& pick) {
  set_durations();
  times.time(compiled_, durations_, more_, 0);
  double excess = times.makespan() / at_most - 1;
  int fullest = -1;
  const Moment* at_fullest = nullptr;
  const double limit =
      chain_.problem().memory_per_rank ? static_cast<double>(chain_.problem().memory_per_rank->value) : 0;
  for (int rank = 0; limit > 0 && rank < chain_.ranks(); ++rank) {
    const std::span<const int> own = chain_.stages_of(rank);
    double fixed = static_cast<double>(chain_.reserve(rank));
    for (const int stage : own) {
      fixed += static_cast<double>(chain_.fixed_bytes(start_of(cuts_, stage), cuts_[static_cast<std::size_t>(stage)]));
    }
    for (const Moment& moment : chain_.moments_of(rank)) {
      double bytes = fixed;
      for (std::size_t n = 0; n < own.size(); ++n) {
        const int end = cuts_[static_cast<std::size_t>(own[n])];
        bytes += moment[n] * static_cast<double>(chain_.kept_bytes(start_of(cuts_, own[n]), end));
      }
      if (!(bytes / limit - 1 > excess)) continue;
      excess = bytes / limit - 1;
      fullest = rank;
      at_fullest = &moment;
    }
  }
  pick.passes.assign(of_.fixed.size(), 0);
  pick.fixed.assign(static_cast<std::size_t>(chain_.ranks()), 0);
  pick.kept.assign(static_cast<std::size_t>(chain_.stages()), 0);
  pick.allowed = 1;
  if (fullest < 0) {
    times.count_longest_path(compiled_, pick.passes);
    for (double& passes : pick.passes) passes /= at_most;
    return excess;
  }
  pick.fixed[static_cast<std::size_t>(fullest)] = 1 / limit;
  const std::span<const int> own = chain_.stages_of(fullest);
  for (std::size_t n = 0; n < own.size(); ++n) pick.kept[static_cast<std::size_t>(own[n])] = (*at_fullest)[n] / limit;
  pick.allowed -= static_cast<double>(chain_.reserve(fullest)) / limit;
  return excess;
}

bool SplitProof::none_within(Seconds at_most, CompiledTimes& times) {
  if (!is_small_enough() || !(at_most.value > 0)) return false;
  measure_runs();
  Mixture mixture{.passes = std::vector<double>(of_.fixed.size(), 0),
                  .fixed = std::vector<double>(static_cast<std::size_t>(chain_.ranks()), 0),
                  .kept = std::vector<double>(static_cast<std::size_t>(chain_.stages()), 0)};
  Mixture pick;
  for (int round = 0; round < most_rounds; ++round) {
    if (chain_.stop() != nullptr) chain_.stop()->check();
    if (lightest(mixture) > proof_rounding) return true;
    if (worst(at_most.value, times, pick) <= proof_rounding) return false;
    const double part = round == 0 ? 1 : 2.0 / (round + 2);
    mix(mixture.passes, pick.passes, part);
    mix(mixture.fixed, pick.fixed, part);
    mix(mixture.kept, pick.kept, part);
    mixture.allowed += part * (pick.allowed - mixture.allowed);
  }
  return false;
}

}  // namespace plumb
