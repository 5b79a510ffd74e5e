// A profile that has measured what the analytic costs say.
#pragma once

#include <cstddef>
#include <vector>

#include "common/block_cost/block_costs.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb::testing {

// Of whole blocks and one sequence.
inline Profile analytic_profile(const Scenario& scenario) {
  Profile profile;
  profile.shapes = {.model = scenario.model.name,
                    .model_digest = model_digest(scenario.model),
                    .sequence = scenario.training.sequence,
                    .microbatch = 1,
                    .precision = scenario.training.precision,
                    .optimizer = scenario.training.optimizer};
  const std::vector<ComputeCost> blocks = block_costs(scenario, 1);
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    profile.blocks.push_back({.block = block_key(scenario.model, static_cast<int>(block)), .cost = blocks[block]});
  }
  return profile;
}

}  // namespace plumb::testing
