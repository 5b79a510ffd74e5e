#include "common/planner/stage_programs.hpp"

#include <utility>

#include "common/block_cost/block_costs.hpp"
#include "common/layout/message_shares.hpp"
#include "common/model/first_equal.hpp"
#include "common/model/lora.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {

StagePrograms::StagePrograms(const Plan& plan, Slice slice) : plan_(plan), redone_(layers_redone_inside(plan)) {
  const auto below = [&](std::size_t block) { return gradient_goes_below(plan.model, plan.training.lora, block); };
  first_ = first_equal(plan.model.layers,
                       [&](std::size_t block, std::size_t earlier) { return below(block) == below(earlier); });
  for (const int rank : plan.schedule.rank_of_stage) {
    const auto [found, is_new] = of_degree_.try_emplace(data_degree(plan.layout, rank));
    if (!is_new) continue;
    Scenario scenario = scenario_of(plan);
    scenario.layout = as_all(plan.layout, rank);
    if (has_stage_data(plan.layout)) {
      scenario.training.microbatch = share_of_stage(plan.layout, rank, plan.training.microbatch);
    }
    for (std::size_t block = 0; block < first_.size(); ++block) {
      found->second.push_back(first_[block] == block ? program_of_block(scenario, block, slice) : BlockProgram{});
    }
  }
  if (plan.layout.vocabulary_barriers == 0) return;
  const Scenario part = scenario_of_part(plan, scenario_of(plan));
  for (const std::size_t block : {0U, 1U}) of_parts_.push_back(program_of_block(part, block, slice));
}

std::vector<const BlockProgram*> StagePrograms::blocks(int stage) const {
  if (is_part(plan_.schedule, stage)) {
    return {&of_parts_[sort_of_stage(plan_.schedule, stage) == StageSort::head ? 1 : 0]};
  }
  const int rank = plan_.schedule.rank_of_stage[static_cast<std::size_t>(stage)];
  const std::vector<BlockProgram>& all = of_degree_.at(data_degree(plan_.layout, rank));
  const BlockRange range = blocks_of_stage(plan_.split, stage);
  std::vector<const BlockProgram*> programs;
  for (int block = range.first; block < range.last; ++block) {
    programs.push_back(&all[first_[static_cast<std::size_t>(block)]]);
  }
  return programs;
}

std::vector<BlockPass> StagePrograms::passes(int stage, ActionKind kind) const {
  const std::vector<const BlockProgram*> programs = blocks(stage);
  const bool parts = is_part(plan_.schedule, stage);
  const auto first = parts ? std::size_t{0} : static_cast<std::size_t>(blocks_of_stage(plan_.split, stage).first);
  std::vector<BlockPass> all;
  if (kind == ActionKind::forward || kind == ActionKind::recompute) {
    for (const BlockProgram* program : programs) all.push_back({program, {Phase::forward}});
    return all;
  }
  const bool both = kind == ActionKind::backward;
  for (std::size_t i = programs.size(); i-- > 0;) {
    const std::size_t block = first + i;  // 0 is the embedding
    const bool redone = !parts && block > 0 && block <= redone_.size() && redone_[block - 1];
    if (redone && kind != ActionKind::weight_gradient) all.push_back({programs[i], {Phase::forward}});
    if (both) {
      all.push_back({programs[i], {Phase::input_gradient, Phase::weight_gradient}});
    } else {
      const bool input = kind == ActionKind::input_gradient;
      all.push_back({programs[i], {input ? Phase::input_gradient : Phase::weight_gradient}});
    }
  }
  return all;
}

}  // namespace plumb
