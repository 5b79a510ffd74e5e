#include "common/search/structure_cache.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/interleaved_table.hpp"

namespace plumb {
namespace {

// Their lists for more microbatches are those for fewer with more of the same in the middle: see the orders that their
// generators state.
constexpr std::array<std::string_view, 4> regular = {"1f1b", "eager-1f1b", "zb-h1", "interleaved-1f1b"};

// Of a regular schedule, the microbatches of one turn of its steady state; 0: it is not regular.
int period_of(const StructureKey& key) {
  if (std::ranges::find(regular, key.schedule) == regular.end() || key.overlap || key.slices > 1) return 0;
  if (key.schedule != "interleaved-1f1b") return 1;
  if (key.microbatches <= key.ranks) return 0;
  const ScheduleShape shape{
      .ranks = key.ranks, .microbatches = key.microbatches, .chunks = key.chunks, .group = key.group};
  try {
    const int group = interleaved_table(key.schedule, shape).group;
    return key.microbatches % group == 0 ? group : 0;
  } catch (const InputError&) {
    return 0;  // said when it is built
  }
}

std::unique_ptr<Structure> build(const StructureKey& key, const Plan& given) {
  auto structure = std::make_unique<Structure>();
  Plan plan = given;
  plan.schedule = generate_schedule(key.schedule, {.ranks = key.ranks,
                                                   .microbatches = key.microbatches,
                                                   .chunks = key.chunks,
                                                   .slices = key.slices,
                                                   .group = key.group,
                                                   .update_every = key.update_every,
                                                   .overlap = key.overlap});
  if (key.recompute) plan.schedule = with_recompute(std::move(plan.schedule));
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
  structure->placement = std::move(plan.schedule);
  structure->placement.actions.clear();
  structure->placement.overlapped.clear();
  return structure;
}

}  // namespace

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
  // few turns show that they are alike.
  for (const int turns : {key.ranks / period + 6, 2 * key.ranks / period + 6}) {
    StructureKey fewer = key;
    fewer.microbatches = turns * period;
    if (key.schedule == "interleaved-1f1b") fewer.group = period;
    if (fewer.microbatches + period > key.microbatches) break;
    if (!structure(fewer, plan).skeleton.loop) continue;
    return {.key = fewer, .more = (key.microbatches - fewer.microbatches) / period};
  }
  return {.key = key};
}

}  // namespace plumb
