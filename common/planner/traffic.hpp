// What ranks receive in a predicted step: messages, gradients that are summed, collectives inside layers.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Of the collectives of tensor parallelism, as a rank receives them in one microbatch (or slice): the moves of the
// stage's blocks (common/placement). A forward that is redone inside the backward counts with the input gradient.
struct StageTraffic {
  double forward = 0;  // bytes, as the next
  double input_gradient = 0;
  double weight_gradient = 0;
  double step = 0;  // once a step: gradients that stayed partial over the tensor group, such as those of norms
  bool operator==(const StageTraffic&) const = default;
};
// By stage, of so many tokens of each sequence; all zero without tensor parallelism.
[[nodiscard]] std::vector<StageTraffic> tensor_traffic(const Plan& plan, std::int64_t sequence);
// Of the longest slice, or the whole sequence.
[[nodiscard]] std::vector<StageTraffic> tensor_traffic(const Plan& plan);

// Writes each rank's `received_bytes` from the events of the timeline's step: of a message its bytes, with what is
// gathered of one that was scattered; of a sum over P data-parallel ranks and replicas of the pipeline 2(P−1)/P of the
// gradients' (a ring's); of an action the traffic of its stage.
void count_received(Timeline& timeline, const Plan& plan);

}  // namespace plumb
