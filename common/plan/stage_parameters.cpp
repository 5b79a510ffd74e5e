#include "common/plan/stage_parameters.hpp"

#include "common/block_cost/analytic_cost.hpp"
#include "common/model/first_equal.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {
namespace {

// Of the embedding, each layer and the head.
std::vector<ComputeCost> counted_blocks(const Plan& plan) {
  const Scenario scenario = scenario_of(plan);
  const OperationContext context = operation_context(kernel_context(scenario));
  const std::vector<Layer>& layers = plan.model.layers;
  std::vector<ComputeCost> blocks;
  const std::vector<std::size_t> first = first_equal(layers, [](std::size_t, std::size_t) { return true; });
  for (std::size_t block = 0; block < first.size(); ++block) {
    if (first[block] < block) {
      blocks.push_back(blocks[first[block]]);
    } else {
      blocks.push_back({.parameters = count_of_rank(shapes_of_block(scenario, block, context)).all});
    }
  }
  if (plan.model.tied_embeddings && plan.split.layers.size() > 1) {
    blocks.back() = with_table_copy(blocks.back(), scenario, blocks.front());
  }
  return blocks;
}

}  // namespace

std::vector<std::int64_t> stage_parameters(const Plan& plan) {
  const std::vector<ComputeCost> blocks = counted_blocks(plan);
  std::vector<std::int64_t> counts;
  for (int stage = 0; stage < static_cast<int>(plan.split.layers.size()); ++stage) {
    counts.push_back(stage_cost(blocks, plan.split, stage).parameters);
  }
  return counts;
}

}  // namespace plumb
