#include "common/schedule/zb_auto.hpp"

#include <algorithm>

#include "common/schedule/generators.hpp"
#include "common/schedule/zb_auto_search.hpp"

namespace plumb {
namespace {

std::vector<Action> actions_of(const std::vector<zb_auto::Step>& list, std::vector<std::int32_t>& done) {
  constexpr ActionKind kinds[] = {ActionKind::forward, ActionKind::input_gradient, ActionKind::weight_gradient};
  std::vector<Action> actions;
  actions.reserve(list.size());
  for (const zb_auto::Step step : list) {
    actions.push_back({kinds[step % 3], static_cast<std::int32_t>(zb_auto::stage_of(step)), done[step]++});
  }
  return actions;
}

}  // namespace

Schedule schedule_zb_auto(const AutoProblem& problem) {
  const zb_auto::Model model = zb_auto::model_of(problem);
  const zb_auto::StepLists lists = zb_auto::best_lists(model);
  std::size_t chunks = 1;
  for (const auto& held : model.stages_of_rank) chunks = std::max(chunks, held.size());
  Schedule schedule{.name = "zb-auto",
                    .ranks = problem.ranks,
                    .microbatches = problem.microbatches,
                    .chunks = static_cast<int>(chunks),
                    .rank_of_stage = problem.rank_of_stage,
                    .actions = {}};
  std::vector<std::int32_t> done(model.steps());
  for (const auto& list : lists) schedule.actions.push_back(actions_of(list, done));
  return schedule;
}

Schedule generate_zb_auto(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("zb-auto", shape);
  if (shape.chunks == 2) schedule.rank_of_stage = wave_placement(shape.ranks, 2);
  const std::size_t stages = schedule.rank_of_stage.size();
  const StageLoad alike{
      .forward = {1}, .input_gradient = {1}, .weight_gradient = {1}, .kept = {1}, .kept_for_weight = {1}};
  return schedule_zb_auto(
      {.ranks = shape.ranks,
       .microbatches = shape.microbatches,
       .rank_of_stage = schedule.rank_of_stage,
       .stages = std::vector<StageLoad>(stages, alike),
       .hop = {},
       .limit = std::vector<Bytes>(static_cast<std::size_t>(shape.ranks), Bytes{static_cast<std::int64_t>(stages)})});
}

}  // namespace plumb
