// The bytes of a plan's blocks as they are counted from their operations.
#pragma once

#include <vector>

#include "common/block_cost/block_costs.hpp"
#include "common/plan/plan.hpp"

namespace plumb::exec::test {

// Of which the plan could be made.
inline Scenario scenario_of(const Plan& plan) {
  Scenario scenario;
  scenario.model = plan.model;
  scenario.cluster.ranks = scenario.cluster.machine.devices = ranks(plan.layout);
  scenario.layout = plan.layout;
  scenario.training = plan.training;
  return scenario;
}

// Blocks, of slices where the plan has them, with the bytes that are counted from their operations; each action takes a
// millisecond.
inline std::vector<ComputeCost> counted_blocks(const Plan& plan) {
  const auto slices = plan.schedule.slices > 1 ? slices_of(plan) : std::vector<plumb::Slice>{};
  std::vector<ComputeCost> blocks = block_costs(scenario_of(plan), plan.training.microbatch, slices);
  for (ComputeCost& block : blocks) {
    for (Seconds* time : {&block.forward, &block.input_gradient, &block.weight_gradient}) *time = {1e-3};
    block.hidden_in_backward = block.optimizer = {};
    block.slices.clear();
    if (plan.training.offload.activations) block = on_host_between_actions(std::move(block), {}, false);
  }
  return blocks;
}

}  // namespace plumb::exec::test
