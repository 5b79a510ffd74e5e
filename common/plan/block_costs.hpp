// The cost of every block of a scenario's model: from its profile if there is one, else from the device's datasheet.
#pragma once

#include <vector>

#include "common/cost/costs.hpp"
#include "common/plan/scenario.hpp"

namespace plumb {

// layers + 2 entries, for one microbatch of `microbatch` sequences. Analytic: FLOPs of common/model/operations.hpp over
// peak × matmul efficiency, kept bytes from the same list. Throws InputError when the profile was measured at other
// shapes, naming both.
[[nodiscard]] std::vector<ComputeCost> block_costs(const Scenario& scenario, std::int64_t microbatch);

// Bytes of parameters, gradients and optimizer states of `parameters` elements: weights in the training precision,
// gradients accumulated in fp32, AdamW with two fp32 moments and an fp32 master copy unless the weights are fp32.
struct StateBytes {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;
};
[[nodiscard]] StateBytes state_bytes(std::int64_t parameters, const Training& training);

}  // namespace plumb
