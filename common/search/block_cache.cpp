#include "common/search/block_cache.hpp"

#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/layout/shared_ports.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/slice_tokens.hpp"

namespace plumb {

BlockRuns::BlockRuns(const std::vector<ComputeCost>& blocks) {
  for (std::size_t n = 0; n < blocks.size(); ++n) {
    const bool same = n > 0 && blocks[n] == blocks[n - 1];
    if (!same) distinct_.push_back(blocks[n]);
    place_.push_back(distinct_.size() - 1);
    same_from_.push_back(same ? same_from_.back() : static_cast<int>(n));
  }
}

void BlockRuns::write_to(std::vector<ComputeCost>& blocks) const {
  blocks.resize(place_.size());
  for (std::size_t n = 0; n < place_.size(); ++n) blocks[n] = distinct_[place_[n]];
}

std::size_t BlockRuns::number(int first, int last) const {
  const int of_last = same_from_[static_cast<std::size_t>(last) - 1];
  const int begin = of_last <= first ? of_last : first;
  return static_cast<std::size_t>(begin) * (place_.size() + 1) + static_cast<std::size_t>(begin + last - first);
}

const ComputeCost& BlockRuns::run(int first, int last) {
  const auto [found, is_new] = runs_.try_emplace(number(first, last));
  if (!is_new) return found->second;
  std::vector<ComputeCost> blocks;
  for (int n = first; n < last; ++n) blocks.push_back(distinct_[place_[static_cast<std::size_t>(n)]]);
  return found->second = in_sequence(blocks);
}

// Bound name by name, so that a member more does not compile.
BlockCache::Place BlockCache::place_of(const GroupPlacement& group) {
  const auto& [ranks, per_machine, ranks_per_nic, uplink_passes, border, step_latency] = group;
  return {static_cast<double>(ranks),
          static_cast<double>(per_machine),
          static_cast<double>(ranks_per_nic),
          uplink_passes,
          border.value,
          step_latency.value};
}

BlockCache::DataKey BlockCache::data_key_of(const Scenario& scenario) {
  const Layout& layout = scenario.layout;
  if (state_shards(layout) == 1) return {};
  std::vector<Place> places;
  if (gathers_in_actions(layout) || reduces_in_actions(layout)) {
    const ShardGroups groups = shard_groups(layout, scenario.cluster);
    places = {place_of(groups.all), place_of(groups.inside), place_of(groups.across)};
  }
  const DataLayout& data = layout.data;
  return {data.sharding,
          data.replicate,
          gathers_in_actions(layout),
          reduces_in_actions(layout),
          data.prefetch,
          data.layers_per_unit,
          data.quantized_weights,
          data.secondary_shard,
          data.quantized_gradients,
          places};
}

BlockCache::Key BlockCache::key_of(const Scenario& scenario, const Plan& plan, bool backward_is_split) {
  const Layout& layout = scenario.layout;
  const TensorGroups groups = tensor_groups(layout, scenario.cluster);
  std::vector<Place> along_axes;  // of a grid
  for (const std::optional<GroupPlacement>& group : groups.by_axes()) {
    if (group) along_axes.push_back(place_of(*group));
  }
  const Recompute& recompute = scenario.training.recompute;
  return {
      data_key_of(scenario),
      {layout.tensor.kind, layout.tensor.degree, layout.tensor.depth, layout.tensor.reshard_after_forward, along_axes},
      state_shards(layout),
      layout.tensor.sequence_parallel,
      place_of(groups.all()),
      static_cast<int>(layout.pipeline > 1),
      scenario.training.microbatch,
      recompute.mode,
      recompute.layers,
      scenario.software.exchange,
      backward_is_split,
      slices_of(plan),
      static_cast<int>(stages(plan.schedule) > 1),
      layout.tensor.asynchronous,
      core_slowdown(layout, scenario.cluster.machine),
      scenario.training.offload,
      layout.vocabulary_barriers > 0};
}

BlockRuns& BlockCache::runs(const Scenario& scenario, const Plan& plan, bool backward_is_split) {
  const Key key = key_of(scenario, plan, backward_is_split);
  if (const auto found = cache_.find(key); found != cache_.end()) return found->second;
  const std::vector<ComputeCost> blocks = settled_blocks(
      plan, scenario, block_costs(scenario, scenario.training.microbatch, slices_of(plan)), backward_is_split);
  return cache_.try_emplace(key, blocks).first->second;
}

const std::vector<ComputeCost>& BlockCache::blocks(const BlockRuns& runs) {
  if (blocks_of_ != &runs) runs.write_to(blocks_);
  blocks_of_ = &runs;
  return blocks_;
}

const PartCosts& BlockCache::parts(const Scenario& scenario, const Plan& plan) {
  const std::tuple key{key_of(scenario, plan, false), plan.layout.pipeline, plan.layout.vocabulary_barriers};
  const auto found = parts_.find(key);
  return found != parts_.end() ? found->second : parts_.try_emplace(key, part_costs(plan, scenario)).first->second;
}

std::vector<std::int64_t> BlockCache::slice_tokens(const Scenario& scenario, const Plan& plan,
                                                   const PlanChoice& choice) {
  if (choice.schedule.slices_by == SlicesBy::tokens) return plumb::slice_tokens(scenario, choice);
  const auto [found, is_new] =
      slices_of_equal_work_.try_emplace({key_of(scenario, plan, false), scenario.layout.pipeline,
                                         microbatches_of(scenario, choice.microbatch), choice.schedule.name});
  if (is_new) found->second = plumb::slice_tokens(scenario, choice);
  return found->second;
}

}  // namespace plumb
