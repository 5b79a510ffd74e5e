#include "common/split/weighed_chain.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "common/base/error.hpp"
#include "common/split/chain.hpp"

namespace plumb {
namespace {

std::vector<std::vector<int>> stages_by_rank(const SplitProblem& problem) {
  std::vector<std::vector<int>> stages(problem.moments.size());
  for (std::size_t stage = 0; stage < problem.rank_of_stage.size(); ++stage) {
    stages[static_cast<std::size_t>(problem.rank_of_stage[stage])].push_back(static_cast<int>(stage));
  }
  return stages;
}

void require_moments(const SplitProblem& problem) {
  const auto ranks = static_cast<int>(problem.moments.size());
  if (std::ranges::any_of(problem.rank_of_stage, [&](int rank) { return rank < 0 || rank >= ranks; })) {
    throw InputError("split",
                     "a stage on a rank that has no moments: expected ranks 0 to " + std::to_string(ranks - 1));
  }
  const std::vector<std::vector<int>> stages = stages_by_rank(problem);
  for (std::size_t rank = 0; rank < stages.size(); ++rank) {
    const auto wrong = [&](const Moment& moment) {
      return moment.size() != stages[rank].size() ||
             std::ranges::any_of(moment, [](int microbatches) { return microbatches < 0; });
    };
    if (std::ranges::any_of(problem.moments[rank], wrong) || (problem.moments[rank].empty() && !stages[rank].empty())) {
      throw InputError("split", "rank " + std::to_string(rank) + ": expected moments of its " +
                                    std::to_string(stages[rank].size()) + " stages");
    }
  }
}

// Each summed from left to right, as the bisection over stage times sums them: comparisons need the same rounding.
std::vector<Seconds> stage_times(const SplitProblem& problem, const Split& split) {
  require_split_of(problem, split);
  std::vector<Seconds> times;
  for (int stage = 0; stage < static_cast<int>(split.layers.size()); ++stage) {
    const BlockRange range = blocks_of_stage(split, stage);
    Seconds& sum = times.emplace_back();
    for (int block = range.first; block < range.last; ++block) {
      sum += problem.block_times[static_cast<std::size_t>(block)];
    }
  }
  return times;
}

}  // namespace

void require_few_blocks(std::size_t blocks) {
  constexpr std::size_t most = 4096;
  if (blocks <= most) return;
  throw InputError("split",
                   "dynamic and parameters take at most " + std::to_string(most - 2) + " layers, the model has " +
                       std::to_string(blocks - 2),
                   "split: uniform");
}

void require_sound(const SplitProblem& problem) {
  const std::size_t blocks = problem.block_times.size();
  const std::size_t stages = problem.rank_of_stage.size();
  require_few_blocks(blocks);
  if (blocks < 2 || problem.block_fixed_bytes.size() != blocks || problem.block_kept_bytes.size() != blocks) {
    throw InputError("split", "times and bytes of " + std::to_string(blocks) + " blocks on " + std::to_string(stages) +
                                  " stages do not fit together");
  }
  require_stages(static_cast<int>(blocks) - 2, static_cast<int>(stages));
  const auto bad_time = [](Seconds time) { return !std::isfinite(time.value) || time.value < 0; };
  const auto bad_bytes = [](Bytes bytes) { return bytes.value < 0; };
  if (std::ranges::any_of(problem.block_times, bad_time) || std::ranges::any_of(problem.block_fixed_bytes, bad_bytes) ||
      std::ranges::any_of(problem.block_kept_bytes, bad_bytes)) {
    throw InputError("split", "a negative or infinite time or size of a block");
  }
  const auto bad_workspace = [&](const BlockWorkspace& of) {
    return std::ranges::any_of(std::array{of.forward, of.input_gradient, of.weight_gradient, of.kept_for_weight},
                               bad_bytes);
  };
  const bool whole = (problem.block_workspaces.empty() || problem.block_workspaces.size() == blocks) &&
                     (problem.rank_reserve.empty() || problem.rank_reserve.size() == problem.moments.size());
  if (!whole || std::ranges::any_of(problem.block_workspaces, bad_workspace) ||
      std::ranges::any_of(problem.rank_reserve, bad_bytes)) {
    throw InputError("split", "workspaces and reserves are not those of " + std::to_string(blocks) + " blocks and " +
                                  std::to_string(problem.moments.size()) + " ranks");
  }
  require_moments(problem);
}

void require_split_of(const SplitProblem& problem, const Split& split) {
  std::int64_t layers = 0;
  for (const int count : split.layers) layers += count;
  if (split.layers.size() != problem.rank_of_stage.size() ||
      layers + 2 != static_cast<std::int64_t>(problem.block_times.size())) {
    throw InputError("split", describe(split) + " is not a split of " + std::to_string(problem.block_times.size() - 2) +
                                  " layers into " + std::to_string(problem.rank_of_stage.size()) + " stages");
  }
}

WeighedChain::WeighedChain(const SplitProblem& problem)
    : time_before_{0},
      fixed_before_{0},
      kept_before_{0},
      rank_of_stage_(problem.rank_of_stage),
      stages_of_rank_(stages_by_rank(problem)),
      moments_(&problem.moments),
      most_held_(problem.rank_of_stage.size(), 0),
      reserve_(problem.rank_reserve),
      workspaces_(problem.block_workspaces),
      stop_(problem.stop) {
  Seconds sum;
  for (const Seconds time : problem.block_times) sum += time;
  for (std::size_t block = 0; block < problem.block_times.size(); ++block) {
    const double share = sum.value > 0 ? problem.block_times[block] / sum : 0;
    time_before_.push_back(time_before_.back() + std::llround(share * static_cast<double>(whole_time)));
    fixed_before_.push_back(fixed_before_.back() + problem.block_fixed_bytes[block].value);
    kept_before_.push_back(kept_before_.back() + problem.block_kept_bytes[block].value);
  }
  for (std::size_t rank = 0; rank < moments_->size(); ++rank) {
    for (const Moment& moment : (*moments_)[rank]) {
      for (std::size_t own = 0; own < moment.size(); ++own) {
        int& most = most_held_[static_cast<std::size_t>(stages_of_rank_[rank][own])];
        most = std::max(most, moment[own]);
      }
    }
  }
  if (!workspaces_.empty()) add_workspaces(problem);
}

// As in_sequence adds them up. F of block i of a stage needs its own workspace and has not kept what the blocks behind
// it will; I has for those behind what W needs instead of what F kept; W has nothing of them.
void WeighedChain::add_workspaces(const SplitProblem& problem) {
  for_weight_before_ = {0};
  std::vector<std::int64_t> forward;
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> weight;
  for (std::size_t block = 0; block < workspaces_.size(); ++block) {
    const BlockWorkspace& own = problem.block_workspaces[block];
    for_weight_before_.push_back(for_weight_before_.back() + own.kept_for_weight.value);
    const std::int64_t kept = kept_before_[block + 1];
    const std::int64_t for_weight = for_weight_before_.back();
    forward.push_back(kept + own.forward.value);
    input.push_back(kept - for_weight + own.input_gradient.value);
    weight.push_back(for_weight + own.weight_gradient.value);
  }
  forward_peaks_ = run_peaks(std::move(forward));
  input_peaks_ = run_peaks(std::move(input));
  weight_peaks_ = run_peaks(std::move(weight));
}

WeighedChain::RunPeaks WeighedChain::run_peaks(std::vector<std::int64_t> entries) {
  RunPeaks peaks = {std::move(entries)};
  for (std::size_t run = 1; 2 * run <= peaks.front().size(); run *= 2) {
    const std::vector<std::int64_t>& half = peaks.back();
    std::vector<std::int64_t> whole;
    for (std::size_t first = 0; first + run < half.size(); ++first) {
      whole.push_back(std::max(half[first], half[first + run]));
    }
    peaks.push_back(std::move(whole));
  }
  return peaks;
}

std::int64_t WeighedChain::largest(const RunPeaks& peaks, int start, int end) {
  const std::size_t run = std::bit_floor(static_cast<std::size_t>(end - start));
  const std::vector<std::int64_t>& runs = peaks[static_cast<std::size_t>(std::countr_zero(run))];
  return std::max(runs[static_cast<std::size_t>(start)], runs[static_cast<std::size_t>(end) - run]);
}

std::int64_t WeighedChain::workspace(int start, int end) const {
  if (!has_workspaces() || start >= end) return 0;
  const auto first = static_cast<std::size_t>(start);
  const auto last = static_cast<std::size_t>(end);
  const std::int64_t kept_until = kept_before_[last];
  const std::int64_t forward = largest(forward_peaks_, start, end) - kept_until;
  const std::int64_t input = largest(input_peaks_, start, end) - (kept_until - for_weight_before_[last]);
  // W begins with what is kept for it alone.
  const std::int64_t weight = largest(weight_peaks_, start, end) - for_weight_before_[first] - kept_bytes(start, end);
  return std::max({forward, input, weight, std::int64_t{0}});
}

bool WeighedChain::alike(int block, int other) const {
  return time(block, block + 1) == time(other, other + 1) &&
         fixed_bytes(block, block + 1) == fixed_bytes(other, other + 1) &&
         kept_bytes(block, block + 1) == kept_bytes(other, other + 1) &&
         (workspaces_.empty() ||
          workspaces_[static_cast<std::size_t>(block)] == workspaces_[static_cast<std::size_t>(other)]);
}

std::int64_t WeighedChain::rank_time(int rank, const std::vector<int>& cuts) const {
  std::int64_t sum = 0;
  for (const int stage : stages_of(rank)) sum += time(start_of(cuts, stage), cuts[static_cast<std::size_t>(stage)]);
  return sum;
}

std::int64_t WeighedChain::working_bytes(int rank, const Moment& moment, int working,
                                         const std::vector<int>& cuts) const {
  const std::vector<int>& own = stages_of(rank);
  std::int64_t sum = 0;
  for (std::size_t n = 0; n < own.size(); ++n) {
    const int start = start_of(cuts, own[n]);
    const int end = cuts[static_cast<std::size_t>(own[n])];
    sum += fixed_bytes(start, end) + moment[n] * kept_bytes(start, end);
    if (static_cast<int>(n) == working) sum += workspace(start, end);
  }
  return sum;
}

std::int64_t WeighedChain::rank_bytes(int rank, const std::vector<int>& cuts) const {
  const std::vector<int>& own = stages_of(rank);
  // The searches ask for this most: what does not depend on the moment is added up once, without new memory.
  thread_local std::vector<std::pair<std::int64_t, std::int64_t>> kept_and_workspace;
  kept_and_workspace.clear();
  std::int64_t fixed = reserve(rank);
  for (const int stage : own) {
    const int start = start_of(cuts, stage);
    const int end = cuts[static_cast<std::size_t>(stage)];
    fixed += fixed_bytes(start, end);
    kept_and_workspace.emplace_back(kept_bytes(start, end), workspace(start, end));
  }
  std::int64_t most = 0;
  for (const Moment& moment : moments_of(rank)) {
    std::int64_t kept = 0;
    std::int64_t working = 0;
    for (std::size_t n = 0; n < own.size(); ++n) {
      kept += moment[n] * kept_and_workspace[n].first;
      if (moment[n] > 0) working = std::max(working, kept_and_workspace[n].second);
    }
    most = std::max(most, kept + working);
  }
  return own.empty() ? 0 : fixed + most;
}

std::vector<int> cuts_of(const Split& split) {
  std::vector<int> cuts;
  for (const int count : split.layers) cuts.push_back((cuts.empty() ? 1 : cuts.back()) + count);
  ++cuts.back();
  return cuts;
}

Seconds slowest_stage_time(const SplitProblem& problem, const Split& split) {
  const std::vector<Seconds> times = stage_times(problem, split);
  return *std::ranges::max_element(times);
}

Seconds slowest_rank_time(const SplitProblem& problem, const Split& split) {
  const std::vector<Seconds> times = stage_times(problem, split);
  std::vector<Seconds> of_rank(problem.moments.size());
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    of_rank.at(static_cast<std::size_t>(problem.rank_of_stage[stage])) += times[stage];
  }
  return *std::ranges::max_element(of_rank);
}

std::vector<Bytes> rank_memory(const SplitProblem& problem, const Split& split) {
  require_sound(problem);
  require_split_of(problem, split);
  const WeighedChain chain(problem);
  const std::vector<int> cuts = cuts_of(split);
  std::vector<Bytes> memory;
  for (int rank = 0; rank < chain.ranks(); ++rank) memory.push_back({chain.rank_bytes(rank, cuts)});
  return memory;
}

}  // namespace plumb
