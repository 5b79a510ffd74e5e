// What a rank receives in a block's program, and in which order its collectives come.
#pragma once

#include <vector>

#include "common/program/step.hpp"

namespace plumb {

// Bytes of the collectives of tensor parallelism, in one microbatch or slice.
struct ProgramTraffic {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double once = 0;  // a step: gradients that stayed partial over the tensor group, such as those of norms
  bool operator==(const ProgramTraffic&) const = default;
};
[[nodiscard]] ProgramTraffic program_traffic(const BlockProgram& program);
[[nodiscard]] double of_phase(const ProgramTraffic& traffic, Phase phase);

// Of a tensor group of so many ranks, bytes whose all-reduce over all of them moves what is summed once a step; of sums
// over fewer ranks, such as those that have one key-value head, accordingly less than they have.
[[nodiscard]] double summed_once(const BlockProgram& program, int ranks);

// The collectives of one phase in the order in which they start. Valid as long as the program is.
[[nodiscard]] std::vector<const StepMove*> moves_of(const BlockProgram& program, Phase phase);

}  // namespace plumb
