// What ranks receive in a predicted step: messages, gradients that are summed, collectives inside layers.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"
#include "common/program/block_program.hpp"
#include "common/program/program_traffic.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Of the collectives of tensor parallelism, as a rank receives them in one slice of a microbatch: those of the programs
// of the stage's blocks. A forward that is redone inside the backward counts with the input gradient. By stage; all
// zero without tensor parallelism.
[[nodiscard]] std::vector<ProgramTraffic> tensor_traffic(const Plan& plan, Slice slice = {});

// Writes each rank's `received_bytes` from the events of the timeline's step: of a message its bytes, with what is
// gathered of one that was scattered; of a sum over P data-parallel ranks and replicas of the pipeline 2(P−1)/P of the
// gradients' (a ring's); of an action the traffic of its stage.
void count_received(Timeline& timeline, const Plan& plan);

}  // namespace plumb
