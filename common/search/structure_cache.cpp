#include "common/search/structure_cache.hpp"

#include <utility>

#include "common/base/error.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/registry.hpp"

namespace plumb {
namespace {

ScheduleShape shape_of(const StructureKey& key, int microbatches) {
  return {.ranks = key.ranks,
          .microbatches = microbatches,
          .chunks = key.chunks,
          .slices = key.slices,
          .group = key.group,
          .update_every = key.update_every,
          .overlap = key.overlap};
}

// Of a schedule with a steady state, the microbatches of one turn of it; 0: it has none.
int period_of(const StructureKey& key) {
  const ScheduleEntry& entry = find_schedule(key.schedule);
  if (!entry.steady_turn || key.overlap || key.slices > 1) return 0;
  return entry.steady_turn(shape_of(key, key.microbatches));
}

Schedule compute_schedule(const StructureKey& key, int microbatches) {
  Schedule schedule = generate_schedule(key.schedule, shape_of(key, microbatches));
  return key.recompute ? with_recompute(std::move(schedule)) : schedule;
}

std::unique_ptr<Structure> build(const StructureKey& key, const Plan& given) {
  auto structure = std::make_unique<Structure>();
  Plan plan = given;
  plan.schedule = compute_schedule(key, key.microbatches);
  structure->splits_backward = splits_backward(plan.schedule);
  structure->evicts = evicts(plan.schedule);
  structure->has_pairs = !plan.schedule.overlapped.empty();
  if (!structure->evicts) {
    PipelineCosts costs;
    costs.exchange = structure->splits_backward ? PipelineExchange::asynchronous : key.exchange;
    costs.ranks_per_machine = key.ranks_per_machine;
    structure->skeleton = build_skeleton(lowered_schedule(plan), costs, period_of(key));
  }
  structure->held = held_moments(plan);
  const bool piles_up = structure->skeleton.loops.size() > 1;
  structure->placement = std::exchange(plan.schedule, {});
  structure->placement.actions.clear();
  structure->placement.overlapped.clear();
  if (!piles_up) return structure;
  plan.schedule = compute_schedule(key, key.microbatches + 1);
  structure->held_by_next = held_moments(plan);
  return structure;
}

}  // namespace

HeldMoments held_with(const Structure& structure, int more) {
  HeldMoments held = structure.held;
  const HeldMoments& next = structure.held_by_next;
  if (next.moments.empty()) return held;
  held.inputs += (next.inputs - held.inputs) * more;
  for (std::size_t rank = 0; rank < held.moments.size(); ++rank) {
    for (std::size_t moment = 0; moment < held.moments[rank].size(); ++moment) {
      for (std::size_t stage = 0; stage < held.moments[rank][moment].size(); ++stage) {
        int& count = held.moments[rank][moment][stage];
        count += (next.moments.at(rank).at(moment).at(stage) - count) * more;
      }
    }
  }
  return held;
}

const Structure& StructureCache::structure(const StructureKey& key, const Plan& plan) {
  const auto [found, is_new] = cache_.try_emplace(key);
  Entry& entry = found->second;
  if (is_new) {
    try {
      entry.structure = build(key, plan);
    } catch (const InputError&) {
      entry.problem = std::current_exception();
    }
  }
  if (entry.problem) std::rethrow_exception(entry.problem);
  return *entry.structure;
}

StructureCache::Shorter StructureCache::shorter(const StructureKey& key, const Plan& plan) {
  const int period = period_of(key);
  if (period == 0) return {.key = key};
  // Warm-up and cool-down take as many microbatches as there are ranks, of eager schedules twice as many; behind them a
  // few turns show that they are alike. Where all F come before all B, every turn is.
  const ScheduleEntry& entry = find_schedule(key.schedule);
  const int warm_up = entry.has_warm_up ? key.ranks / period : 0;
  for (const int turns : {warm_up + 6, 2 * warm_up + 6}) {
    StructureKey fewer = key;
    fewer.microbatches = turns * period;
    if (entry.uses_group) fewer.group = period;
    if (fewer.microbatches + period > key.microbatches) break;
    if (structure(fewer, plan).skeleton.loops.empty()) continue;
    return {.key = fewer, .more = (key.microbatches - fewer.microbatches) / period};
  }
  return {.key = key};
}

}  // namespace plumb
