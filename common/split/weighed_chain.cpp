#include "common/split/weighed_chain.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "common/base/error.hpp"
#include "common/split/chain.hpp"

namespace plumb {
namespace {

void require_moments(const SplitProblem& problem) {
  const auto ranks = static_cast<int>(problem.moments.size());
  if (std::ranges::any_of(problem.rank_of_stage, [&](int rank) { return rank < 0 || rank >= ranks; })) {
    throw InputError("split",
                     "a stage on a rank that has no moments: expected ranks 0 to " + std::to_string(ranks - 1));
  }
  std::vector<std::size_t> stages(problem.moments.size(), 0);
  for (const int rank : problem.rank_of_stage) ++stages[static_cast<std::size_t>(rank)];
  for (std::size_t rank = 0; rank < stages.size(); ++rank) {
    const auto wrong = [&](const Moment& moment) {
      return moment.size() != stages[rank] ||
             std::ranges::any_of(moment, [](int microbatches) { return microbatches < 0; });
    };
    if (std::ranges::any_of(problem.moments[rank], wrong) || (problem.moments[rank].empty() && stages[rank] > 0)) {
      throw InputError("split", "rank " + std::to_string(rank) + ": expected moments of its " +
                                    std::to_string(stages[rank]) + " stages");
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

const SplitProblem& sound(const SplitProblem& problem) {
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
  return problem;
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

void require_split_of(const SplitProblem& problem, const Split& split) {
  std::int64_t layers = 0;
  for (const int count : split.layers) layers += count;
  if (split.layers.size() != problem.rank_of_stage.size() ||
      layers + 2 != static_cast<std::int64_t>(problem.block_times.size())) {
    throw InputError("split", describe(split) + " is not a split of " + std::to_string(problem.block_times.size() - 2) +
                                  " layers into " + std::to_string(problem.rank_of_stage.size()) + " stages");
  }
}

WeighedChain::WeighedChain(const SplitProblem& problem) : problem_(&sound(problem)) {
  add_blocks();
  add_stages();
  if (has_workspaces()) add_workspaces();
}

void WeighedChain::add_blocks() {
  Seconds sum;
  for (const Seconds time : problem_->block_times) sum += time;
  const std::size_t count = problem_->block_times.size();
  for (auto* const before : {&time_before_, &fixed_before_, &kept_before_}) {
    before->reserve(count + 1);
    before->push_back(0);
  }
  for (std::size_t block = 0; block < count; ++block) {
    const double share = sum.value > 0 ? problem_->block_times[block] / sum : 0;
    time_before_.push_back(time_before_.back() + std::llround(share * static_cast<double>(whole_time)));
    fixed_before_.push_back(fixed_before_.back() + problem_->block_fixed_bytes[block].value);
    kept_before_.push_back(kept_before_.back() + problem_->block_kept_bytes[block].value);
  }
}

void WeighedChain::add_stages() {
  first_of_rank_.assign(problem_->moments.size() + 1, 0);
  for (const int rank : problem_->rank_of_stage) ++first_of_rank_[static_cast<std::size_t>(rank) + 1];
  std::partial_sum(first_of_rank_.begin(), first_of_rank_.end(), first_of_rank_.begin());
  std::vector<int> next = first_of_rank_;
  stages_by_rank_.resize(problem_->rank_of_stage.size());
  for (int stage = 0; stage < stages(); ++stage) {
    int& place = next[static_cast<std::size_t>(rank_of(stage))];
    stages_by_rank_[static_cast<std::size_t>(place)] = stage;
    ++place;
  }
  most_held_.assign(problem_->rank_of_stage.size(), 0);
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::span<const int> own = stages_of(rank);
    for (const Moment& moment : moments_of(rank)) {
      for (std::size_t n = 0; n < moment.size(); ++n) {
        int& most = most_held_[static_cast<std::size_t>(own[n])];
        most = std::max(most, moment[n]);
      }
    }
  }
}

// As in_sequence adds them up. F of block i of a stage needs its own workspace and has not kept what the blocks behind
// it will; I has for those behind what W needs instead of what F kept; W has nothing of them.
void WeighedChain::add_workspaces() {
  const std::size_t count = problem_->block_workspaces.size();
  for_weight_before_.reserve(count + 1);
  for_weight_before_.push_back(0);
  run_peaks_.reserve(count * static_cast<std::size_t>(std::bit_width(count)));
  for (std::size_t block = 0; block < count; ++block) {
    const BlockWorkspace& own = problem_->block_workspaces[block];
    for_weight_before_.push_back(for_weight_before_.back() + own.kept_for_weight.value);
    const std::int64_t kept = kept_before_[block + 1];
    const std::int64_t for_weight = for_weight_before_.back();
    run_peaks_.push_back({.forward = kept + own.forward.value,
                          .input = kept - for_weight + own.input_gradient.value,
                          .weight = for_weight + own.weight_gradient.value});
  }
  for (std::size_t run = 1; 2 * run <= count; run *= 2) {
    const std::size_t half = run_peaks_.size() - count;
    for (std::size_t first = 0; first < count; ++first) {
      const Peaks& before = run_peaks_[half + first];
      const Peaks& behind = run_peaks_[half + std::min(first + run, count - 1)];
      run_peaks_.push_back(larger(before, behind));
    }
  }
}

// By two runs that overlap.
WeighedChain::Peaks WeighedChain::largest_peaks(int start, int end) const {
  const auto run = std::bit_floor(static_cast<unsigned>(end - start));
  const Peaks* const runs =
      run_peaks_.data() + static_cast<std::size_t>(std::countr_zero(run)) * problem_->block_workspaces.size();
  return larger(runs[start], runs[end - static_cast<int>(run)]);
}

std::int64_t WeighedChain::workspace(int start, int end) const {
  if (!has_workspaces() || start >= end) return 0;
  const auto first = static_cast<std::size_t>(start);
  const auto last = static_cast<std::size_t>(end);
  const std::int64_t kept_until = kept_before_[last];
  const Peaks peaks = largest_peaks(start, end);
  const std::int64_t forward = peaks.forward - kept_until;
  const std::int64_t input = peaks.input - (kept_until - for_weight_before_[last]);
  // W begins with what is kept for it alone.
  const std::int64_t weight = peaks.weight - for_weight_before_[first] - kept_bytes(start, end);
  return std::max({forward, input, weight, std::int64_t{0}});
}

int WeighedChain::farthest_that_fits(int stage, int start, int end) const {
  const std::optional<Bytes> limit = problem_->memory_per_rank;
  const auto fits = [&](int to) { return !limit || stage_bytes(stage, start, to) <= limit->value; };
  return start == end || fits(end) ? end : farthest_end(start, end, fits);
}

bool WeighedChain::alike(int block, int other) const {
  const std::vector<BlockWorkspace>& workspaces = problem_->block_workspaces;
  return time(block, block + 1) == time(other, other + 1) &&
         fixed_bytes(block, block + 1) == fixed_bytes(other, other + 1) &&
         kept_bytes(block, block + 1) == kept_bytes(other, other + 1) &&
         (workspaces.empty() ||
          workspaces[static_cast<std::size_t>(block)] == workspaces[static_cast<std::size_t>(other)]);
}

std::int64_t WeighedChain::rank_time(int rank, const std::vector<int>& cuts) const {
  std::int64_t sum = 0;
  for (const int stage : stages_of(rank)) sum += time(start_of(cuts, stage), cuts[static_cast<std::size_t>(stage)]);
  return sum;
}

std::int64_t WeighedChain::working_bytes(int rank, const Moment& moment, int working,
                                         const std::vector<int>& cuts) const {
  const std::span<const int> own = stages_of(rank);
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
  const std::span<const int> own = stages_of(rank);
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

std::vector<Bytes> rank_memory(const WeighedChain& chain, const Split& split) {
  require_split_of(chain.problem(), split);
  const std::vector<int> cuts = cuts_of(split);
  std::vector<Bytes> memory;
  for (int rank = 0; rank < chain.ranks(); ++rank) memory.push_back({chain.rank_bytes(rank, cuts)});
  return memory;
}

}  // namespace plumb
