// The bytes of a plan's blocks as they are counted from their operations.
#pragma once

#include <vector>

#include "common/block_cost/block_costs.hpp"
#include "common/plan/plan.hpp"
#include "tests/exec/stage/training_plan.hpp"

namespace plumb::exec::test {

// Blocks, of slices where the plan has them, with the bytes that are counted from their operations; each action takes a
// millisecond.
inline std::vector<ComputeCost> counted_blocks(const Plan& plan) {
  const auto slices = plan.schedule.slices > 1 ? slices_of(plan) : std::vector<plumb::Slice>{};
  std::vector<ComputeCost> blocks = block_costs(counted_scenario(plan), plan.training.microbatch, slices);
  for (ComputeCost& block : blocks) {
    block = with_equal_times(std::move(block));
    if (plan.training.offload.activations) block = on_host_between_actions(std::move(block), {}, false);
  }
  return blocks;
}

}  // namespace plumb::exec::test
