#include "common/schedule/zb_auto/seeds.hpp"

#include <algorithm>
#include <optional>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb::zb_auto {
namespace {

// The problem's rank for each rank of the schedule, if its placement is the same but for the ranks' numbers.
std::optional<std::vector<std::size_t>> ranks_of(const Model& model, const Schedule& schedule) {
  if (schedule.rank_of_stage.size() != model.stages || replicas(schedule) != 1) return std::nullopt;
  std::vector<std::size_t> ranks(model.ranks, model.ranks);
  std::vector<bool> taken(model.ranks, false);
  for (std::size_t s = 0; s < model.stages; ++s) {
    std::size_t& rank = ranks[static_cast<std::size_t>(schedule.rank_of_stage[s])];
    const std::size_t own = model.rank_of_stage[s];
    if (rank == own) continue;
    if (rank != model.ranks || taken[own]) return std::nullopt;
    rank = own;
    taken[own] = true;
  }
  return ranks;
}

std::optional<StepLists> steps_of(const Model& model, const Schedule& schedule) {
  const auto ranks = ranks_of(model, schedule);
  if (!ranks || schedule.update_every != 0) return std::nullopt;
  StepLists lists(model.ranks);
  for (std::size_t r = 0; r < model.ranks; ++r) {
    if ((*ranks)[r] == model.ranks) continue;
    std::vector<Step>& list = lists[(*ranks)[r]];
    for (const Action& action : schedule.actions[r]) {
      const auto add = [&](Part part) { list.push_back(step_of(static_cast<std::size_t>(action.stage), part)); };
      if (action.kind == ActionKind::forward) {
        add(Part::forward);
      } else if (action.kind == ActionKind::input_gradient) {
        add(Part::input_gradient);
      } else if (action.kind == ActionKind::weight_gradient) {
        add(Part::weight_gradient);
      } else if (action.kind == ActionKind::backward) {
        add(Part::input_gradient);
        add(Part::weight_gradient);
      } else {
        return std::nullopt;
      }
    }
  }
  return lists;
}

}  // namespace

std::vector<StepLists> fixed_schedules(const Model& model) {
  std::vector<StepLists> seeds;
  if (model.stages % model.ranks != 0) return seeds;
  const ScheduleShape shape{.ranks = static_cast<int>(model.ranks),
                            .microbatches = static_cast<int>(model.microbatches),
                            .chunks = static_cast<int>(model.stages / model.ranks)};
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (entry.uses_times || entry.updates_within) continue;
    try {
      if (auto lists = steps_of(model, entry.generate(shape))) seeds.push_back(std::move(*lists));
    } catch (const InputError&) {  // the schedule has a requirement that this shape does not meet
    }
  }
  return seeds;
}

StepLists one_at_a_time(const Model& model) {
  StepLists lists(model.ranks);
  const auto add = [&](std::size_t stage, Part part) {
    lists[model.rank_of_stage[stage]].push_back(step_of(stage, part));
  };
  for (std::size_t k = 0; k < model.microbatches; ++k) {
    for (std::size_t s = 0; s < model.stages; ++s) add(s, Part::forward);
    for (std::size_t s = model.stages; s-- > 0;) {
      add(s, Part::input_gradient);
      add(s, Part::weight_gradient);
    }
  }
  return lists;
}

}  // namespace plumb::zb_auto
