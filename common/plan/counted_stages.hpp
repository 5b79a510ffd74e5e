// What a rank of each stage has of weights, by the shapes of the plan's model and its layout: what its costs count too.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"

namespace plumb {

// Costs with `parameters`, the bytes of states, `gathered_bytes` and the bytes of `data_moves` alone. Of gradients that
// are reduced in actions also those that tensor ranks or a tied table's stages add up first, which costs reduce later.
[[nodiscard]] std::vector<ComputeCost> counted_stages(const Plan& plan);

}  // namespace plumb
