#include "common/plan/counted_stages.hpp"

#include "common/block_cost/analytic_cost.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/block_work.hpp"
#include "common/model/first_equal.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/vocabulary_costs.hpp"

namespace plumb {
namespace {

// Of the embedding, each layer and the head.
std::vector<ComputeCost> counted_blocks(const Plan& plan) {
  const Scenario scenario = scenario_of(plan);
  const std::vector<Layer>& layers = plan.model.layers;
  std::vector<ComputeCost> blocks;
  const std::vector<std::size_t> first = first_equal(layers);
  for (std::size_t block = 0; block < first.size(); ++block) {
    if (first[block] < block) {
      blocks.push_back(blocks[first[block]]);
    } else {
      ComputeCost cost;
      set_states(cost, share_of_rank(*work_of_block(scenario, block), scenario), scenario);
      blocks.push_back(cost);
    }
  }
  settle_tied_head(blocks, scenario, static_cast<int>(plan.split.layers.size()));
  return blocks;
}

}  // namespace

std::vector<ComputeCost> counted_stages(const Plan& plan) {
  const std::vector<ComputeCost> blocks = counted_blocks(plan);
  std::vector<ComputeCost> stages;
  for (int stage = 0; stage < static_cast<int>(plan.split.layers.size()); ++stage) {
    stages.push_back(stage_cost(blocks, plan.split, stage));
  }
  if (plan.layout.vocabulary_barriers > 0) {
    const auto [head, embedding] = part_costs(plan, scenario_of(plan));
    for (const ComputeCost& part : {head, embedding}) {
      stages.insert(stages.end(), static_cast<std::size_t>(plan.layout.pipeline), in_sequence({part}));
    }
  }
  return stages;
}

}  // namespace plumb
