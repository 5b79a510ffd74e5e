#include "common/planner/shard_traffic.hpp"

#include "common/block_cost/analytic_cost.hpp"
#include "common/block_cost/block_work.hpp"
#include "common/cost/shard_moves.hpp"
#include "common/layout/sharding.hpp"
#include "common/model/first_equal.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {
namespace {

ShardTraffic by_costs(const Plan& plan, const ComputeCost& cost) {
  const ElementType weights = plan.training.precision;
  const ElementType gradients = plan.software.gradients;
  const DataMoves& moves = cost.data_moves;
  return {.gathered = received_in_gather(plan.layout, weights, moves.gathered),
          .gathered_again = received_in_second_gather(plan.layout, weights, moves.gathered),
          .reduced = received_in_reduction(plan.layout, gradients, moves.reduced),
          .unsharded = received_in_gather(plan.layout, weights, cost.gathered_bytes),
          .reduced_once = received_in_reduction(plan.layout, gradients, reduced_bytes(cost))};
}

void add(ShardTraffic& sum, const ShardTraffic& traffic) {
  for (const auto part : {&ShardTraffic::gathered, &ShardTraffic::gathered_again, &ShardTraffic::reduced,
                          &ShardTraffic::unsharded, &ShardTraffic::reduced_once}) {
    sum.*part += traffic.*part;
  }
}

ShardTraffic of_weights(const std::vector<WeightOfRank>& weights, const Plan& plan) {
  const Layout& layout = plan.layout;
  const ElementType type = plan.training.precision;
  const ElementType gradients = plan.software.gradients;
  ShardTraffic sum;
  for (const WeightOfRank& weight : weights) {
    const Bytes whole{weight.elements * element_bytes(type)};
    const double gathered = received_in_gather(layout, type, whole);
    if (gathers_in_actions(layout)) {
      sum.gathered += gathered;
      sum.gathered_again += received_in_second_gather(layout, type, whole);
    } else {
      sum.unsharded += gathered;
    }
    if (!weight.trained) continue;
    const double reduced = received_in_reduction(layout, gradients, {weight.elements * element_bytes(gradients)});
    (reduces_in_actions(layout) && !weight.late ? sum.reduced : sum.reduced_once) += reduced;
  }
  return sum;
}

// A tied head's table: of another stage than the embedding's it is a copy with a gradient of its own; of the same stage
// there is one table, which actions that gather for themselves gather for either block.
std::vector<WeightOfRank> table_of_head(const Plan& plan, const Scenario& scenario) {
  const bool copy = stages(plan.schedule) > 1;
  if (!plan.model.tied_embeddings || (!copy && !gathers_in_actions(plan.layout))) return {};
  return {{.elements = table_of_rank(scenario), .trained = copy && !plan.training.lora, .late = true}};
}

std::vector<ShardTraffic> of_blocks(const Plan& plan) {
  const Scenario scenario = scenario_of(plan);
  std::vector<ShardTraffic> blocks;
  for (const std::size_t first : first_equal(plan.model.layers)) {
    blocks.push_back(first < blocks.size()
                         ? blocks[first]
                         : of_weights(weights_of_rank(*work_of_block(scenario, first), scenario), plan));
  }
  add(blocks.back(), of_weights(table_of_head(plan, scenario), plan));
  return blocks;
}

}  // namespace

std::vector<ShardTraffic> shard_traffic(const Plan& plan) {
  const DataLayout& data = plan.layout.data;
  std::vector<ShardTraffic> all;
  if (!data.quantized_weights && data.quantized_gradients == 0) {
    for (const ComputeCost& cost : plan.costs.stages) all.push_back(by_costs(plan, cost));
    return all;
  }
  const std::vector<ShardTraffic> blocks = of_blocks(plan);
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    const BlockRange range = blocks_of_stage(plan.split, stage);
    ShardTraffic& sum = all.emplace_back();
    for (int block = range.first; block < range.last; ++block) add(sum, blocks[static_cast<std::size_t>(block)]);
  }
  return all;
}

}  // namespace plumb
