#include "common/schedule/zb_auto/zb_auto.hpp"

#include <algorithm>
#include <optional>

#include "common/schedule/generators/generators.hpp"
#include "common/schedule/zb_auto/search.hpp"

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

Schedule schedule_of(const AutoProblem& problem, const zb_auto::Model& model, const zb_auto::StepLists& lists) {
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

}  // namespace

Schedule schedule_zb_auto(const AutoProblem& problem) {
  const zb_auto::Model model = zb_auto::model_of(problem);
  return schedule_of(problem, model, zb_auto::best_lists(model).lists);
}

std::vector<StagePlacement> auto_placements(int ranks, int chunks) {
  if (ranks == 1 || chunks % 2 != 0) return {loop_placement};
  return {wave_placement, loop_placement};
}

Schedule schedule_zb_auto(AutoProblem problem, const std::vector<StagePlacement>& placements, int chunks) {
  std::optional<Schedule> schedule;
  zb_auto::Score score;
  for (const StagePlacement placement : placements) {
    problem.rank_of_stage = placement(problem.ranks, chunks);
    const zb_auto::Model model = zb_auto::model_of(problem);
    if (schedule && reaches(score, zb_auto::bound(model))) continue;  // nothing there ends earlier
    const zb_auto::Candidate found = zb_auto::best_lists(model);
    zb_auto::Score without_span = found.score;
    without_span.span = 0;
    if (schedule && !better(without_span, score)) continue;
    schedule = schedule_of(problem, model, found.lists);
    score = without_span;
  }
  return schedule.value();
}

Schedule even_zb_auto(const ScheduleShape& shape, const std::vector<StagePlacement>& placements, const Stop* stop) {
  const Schedule schedule = empty_schedule("zb-auto", shape);
  const std::size_t stages = schedule.rank_of_stage.size();
  const StageLoad alike{
      .forward = {1}, .input_gradient = {1}, .weight_gradient = {1}, .kept = {1}, .kept_for_weight = {1}};
  const std::vector<Bytes> limit(static_cast<std::size_t>(shape.ranks), Bytes{static_cast<std::int64_t>(stages)});
  return schedule_zb_auto({.ranks = shape.ranks,
                           .microbatches = shape.microbatches,
                           .rank_of_stage = {},
                           .stages = std::vector<StageLoad>(stages, alike),
                           .hop = {},
                           .limit = limit,
                           .stop = stop},
                          placements, shape.chunks);
}

Schedule generate_zb_auto(const ScheduleShape& shape) {
  return even_zb_auto(shape, auto_placements(shape.ranks, shape.chunks));
}

}  // namespace plumb
