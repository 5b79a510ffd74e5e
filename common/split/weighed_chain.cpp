#include "common/split/weighed_chain.hpp"

#include <algorithm>
#include <cmath>

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

void require_sound(const SplitProblem& problem) {
  const std::size_t blocks = problem.block_times.size();
  const std::size_t stages = problem.rank_of_stage.size();
  if (blocks < 2 || blocks > most_blocks || problem.block_fixed_bytes.size() != blocks ||
      problem.block_kept_bytes.size() != blocks) {
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
}

std::int64_t WeighedChain::rank_time(int rank, const std::vector<int>& cuts) const {
  std::int64_t sum = 0;
  for (const int stage : stages_of(rank)) sum += time(start_of(cuts, stage), cuts[static_cast<std::size_t>(stage)]);
  return sum;
}

std::int64_t WeighedChain::moment_bytes(int rank, const Moment& moment, const std::vector<int>& cuts) const {
  const std::vector<int>& own = stages_of(rank);
  std::int64_t sum = 0;
  for (std::size_t n = 0; n < own.size(); ++n) {
    const int start = start_of(cuts, own[n]);
    const int end = cuts[static_cast<std::size_t>(own[n])];
    sum += fixed_bytes(start, end) + moment[n] * kept_bytes(start, end);
  }
  return sum;
}

std::int64_t WeighedChain::rank_bytes(int rank, const std::vector<int>& cuts) const {
  std::int64_t most = 0;
  for (const Moment& moment : moments_of(rank)) most = std::max(most, moment_bytes(rank, moment, cuts));
  return most;
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
