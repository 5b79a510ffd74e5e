#include "common/search/structure_cache.hpp"

#include <utility>

#include "common/base/error.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb {
namespace {

ScheduleShape shape_of(const StructureKey& key, int microbatches) {
  return {.ranks = key.ranks,
          .microbatches = microbatches,
          .chunks = key.chunks,
          .slices = key.slices,
          .group = key.group,
          .update_every = key.update_every,
          .overlap = key.overlap,
          .vocabulary_barriers = key.vocabulary_barriers};
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

// Each of its parts may take seconds where the schedule is large: `stop` is asked between them.
std::unique_ptr<Structure> build(const StructureKey& key, const Plan& given, const Stop* stop) {
  const auto look = [stop] {
    if (stop != nullptr) stop->check();
  };
  auto structure = std::make_unique<Structure>();
  Plan plan = given;
  look();
  plan.schedule = compute_schedule(key, key.microbatches);
  look();
  structure->splits_backward = splits_backward(plan.schedule);
  structure->weight_gradient_last = weight_gradient_last(plan.schedule);
  structure->evicts = evicts(plan.schedule);
  structure->has_pairs = !plan.schedule.overlapped.empty();
  if (!structure->evicts) {
    PipelineCosts costs;
    costs.exchange = structure->splits_backward ? PipelineExchange::asynchronous : key.exchange;
    costs.ranks_per_machine = key.ranks_per_machine;
    structure->compiled = compile_graph(lowered_schedule(plan), costs, period_of(key));
  }
  look();
  structure->held = held_moments(plan);
  const bool piles_up = structure->compiled.loops.size() > 1;
  structure->placement = std::exchange(plan.schedule, {});
  structure->placement.actions.clear();
  structure->placement.overlapped.clear();
  if (!piles_up) return structure;
  plan.schedule = compute_schedule(key, key.microbatches + 1);
  structure->held_by_next = held_moments(plan);
  return structure;
}

using RankMoments = std::vector<std::vector<Moment>>;

// What grows from one to the next grows as much with each of `more`.
void extend(std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& next, int more) {
  for (std::size_t n = 0; n < counts.size(); ++n) counts[n] += (next.at(n) - counts[n]) * more;
}
void extend(RankMoments& moments, const RankMoments& next, int more) {
  for (std::size_t rank = 0; rank < moments.size(); ++rank) {
    for (std::size_t moment = 0; moment < moments[rank].size(); ++moment) {
      Moment& held = moments[rank][moment];
      for (std::size_t stage = 0; stage < held.size(); ++stage) {
        held[stage] += (next.at(rank).at(moment).at(stage) - held[stage]) * more;
      }
    }
  }
}

}  // namespace

HeldMoments held_with(const Structure& structure, int more) {
  HeldMoments held = structure.held;
  const HeldMoments& next = structure.held_by_next;
  if (next.moments.empty()) return held;
  extend(held.inputs, next.inputs, more);
  extend(held.moments, next.moments, more);
  extend(held.moments_until_input, next.moments_until_input, more);
  return held;
}

const Structure& StructureCache::structure(const StructureKey& key, const Plan& plan) {
  const auto [found, is_new] = cache_.try_emplace(key);
  Entry& entry = found->second;
  if (is_new) {
    try {
      entry.structure = build(key, plan, stop_);
    } catch (const InputError&) {
      entry.problem = std::current_exception();
    } catch (const Stopped&) {
      cache_.erase(found);
      throw;
    }
  }
  if (entry.problem) std::rethrow_exception(entry.problem);
  return *entry.structure;
}

StructureCache::Shorter StructureCache::shorter(const StructureKey& key, const Plan& plan) {
  const int period = period_of(key);
  if (period == 0) return {.key = key};
  // Warm-up and cool-down take as many microbatches as there are ranks, of eager schedules twice as many; behind them a
  // few turns show that they are alike, of parts of a vocabulary, which begin and end by turns of their own, a few
  // more. Where all F come before all B, every turn is.
  const ScheduleEntry& entry = find_schedule(key.schedule);
  const int warm_up = entry.has_warm_up ? key.ranks / period : 0;
  const int alike = key.vocabulary_barriers > 0 ? 10 : 6;
  for (const int turns : {warm_up + alike, 2 * warm_up + alike}) {
    StructureKey fewer = key;
    fewer.microbatches = turns * period;
    if (entry.uses_group) fewer.group = period;
    if (fewer.microbatches + period > key.microbatches) break;
    if (structure(fewer, plan).compiled.loops.empty()) continue;
    return {.key = fewer, .more = (key.microbatches - fewer.microbatches) / period};
  }
  return {.key = key};
}

}  // namespace plumb
