// The dynamic split of stages with different data degrees: a block takes as long as its stage has replicas for it.
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/error.hpp"
#include "common/cost/stage_workspace.hpp"
#include "common/graph/memory.hpp"
#include "common/planner/fastest_split.hpp"
#include "common/split/baselines/least_worst.hpp"

namespace plumb {
namespace {

// All are weighed where there are no more of them.
constexpr std::size_t few_splits = 100;

// Sums over the first blocks, by pipeline rank.
struct Sums {
  std::vector<std::vector<Seconds>> time;
  std::vector<std::vector<Bytes>> fixed;
  std::vector<std::vector<Bytes>> kept;
  std::vector<StageWorkspaces> workspaces;
};

Sums sums_of(const RankBlocks& blocks, bool recomputed, BackwardIn actions) {
  Sums sums;
  for (const std::vector<ComputeCost>& of_rank : blocks) {
    sums.time.emplace_back(1);
    sums.fixed.emplace_back(1);
    sums.kept.emplace_back(1);
    sums.workspaces.emplace_back(of_rank, actions);
    for (const ComputeCost& block : of_rank) {
      sums.time.back().push_back(sums.time.back().back() + microbatch_time(block, recomputed));
      sums.fixed.back().push_back(sums.fixed.back().back() + block.parameter_bytes + block.gradient_bytes +
                                  block.optimizer_bytes);
      sums.kept.back().push_back(sums.kept.back().back() + most_kept(block, actions));
    }
  }
  return sums;
}

template <class T>
T between(const std::vector<T>& sums, int first, int last) {
  return sums[static_cast<std::size_t>(last)] - sums[static_cast<std::size_t>(first)];
}

// Of each stage the most microbatches that it holds at once.
std::vector<int> most_held(const Schedule& schedule) {
  std::vector<int> held(schedule.rank_of_stage.size(), 1);
  const auto moments = fullest_moments(schedule);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<int> own = stages_of_rank(schedule, rank);
    for (const std::vector<int>& moment : moments[static_cast<std::size_t>(rank)]) {
      for (std::size_t i = 0; i < own.size(); ++i) {
        int& most = held[static_cast<std::size_t>(own[i])];
        most = std::max(most, moment[i]);
      }
    }
  }
  return held;
}

// Every split of so many layers, or none where there are more than few of them.
std::vector<Split> all_splits(int layers, int stage_count) {
  std::vector<Split> splits = {{}};
  for (int stage = 0; stage < stage_count; ++stage) {
    std::vector<Split> longer;
    for (const Split& split : splits) {
      int left = layers;
      for (const int count : split.layers) left -= count;
      const bool last = stage + 1 == stage_count;
      for (int count = last ? left : (stage == 0 ? 0 : 1); count <= left; ++count) {
        longer.push_back(split);
        longer.back().layers.push_back(count);
      }
      if (longer.size() > few_splits) return {};
    }
    splits = std::move(longer);
  }
  return splits;
}

}  // namespace

Split split_by_stage_data(const Plan& plan, const RankBlocks& blocks, const CostsOf& costs_of) {
  const int layers = static_cast<int>(plan.model.layers.size());
  const int stage_count = stages(plan.schedule);
  require_stages(layers, stage_count);
  const bool recomputed = recomputes_by_action(plan);
  const BackwardIn actions = splits_backward(plan.schedule) ? BackwardIn::two : BackwardIn::one;
  const Sums sums = sums_of(blocks, recomputed, actions);
  const std::vector<int> held = most_held(plan.schedule);
  const Bytes memory = plan.cluster.machine.device.memory.value;
  const auto cut = [&](bool fitting) {
    return least_worst_split(layers + 2, stage_count, [&](int stage, int first, int last) {
      const auto rank = static_cast<std::size_t>(plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
      const Bytes kept =
          between(sums.kept[rank], first, last) * (recomputed ? 1 : held[static_cast<std::size_t>(stage)]);
      // Not endless: then no cut at all would be one.
      constexpr double far_too_slow = 1e9;
      const bool fits =
          !fitting || between(sums.fixed[rank], first, last) + kept + sums.workspaces[rank].of(first, last) <= memory;
      return between(sums.time[rank], first, last) * (fits ? 1 : far_too_slow);
    });
  };
  const Split fastest = cut(false);
  std::vector<Split> starts = {uniform_split(layers, stage_count), fastest, cut(true)};
  for (Split& split : all_splits(layers, stage_count)) starts.push_back(std::move(split));
  return fastest_split(starts, weigh_by_path(plan, costs_of)).value_or(fastest);
}

}  // namespace plumb
