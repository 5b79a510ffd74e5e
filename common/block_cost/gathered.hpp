// What products of a grid (2d to 3d) gather and make beside what a rank stores: on one rank.
#pragma once

#include <vector>

#include "common/base/units.hpp"
#include "common/model/operations.hpp"
#include "common/placement/placed_block.hpp"
#include "common/program/step.hpp"

namespace plumb {

struct Gathered {
  // Where F's gathered operands serve the backward, from F on: weights until I, beside the rank's part; inputs until W,
  // in place of it, but where I reads that, too (the output of an attention).
  Bytes kept = {};
  Bytes kept_for_weight = {};
  Bytes inputs_for_weight = {};      // gathered again in W
  std::int64_t weight_gradient = 0;  // elements of the largest that W makes, before ranks share it out
};

// Of a block without moves nothing but `weight_gradient`.
[[nodiscard]] Gathered gathered(const PlacedBlock& placed, ElementType precision);

// The most that one operation has in F and in I beside all that F keeps: what it makes there, and what its site moves,
// operands as they are gathered, results and gradients before and behind their moves; in I also what the operations
// behind it leave for W in place of what F kept of them. `kept`: of the operations, in their order.
struct LargestMoment {
  Bytes forward = {};
  Bytes input_gradient = {};
};
[[nodiscard]] LargestMoment largest_moment(const std::vector<Operation>& operations, const std::vector<KeptValue>& kept,
                                           const PlacedBlock& placed, ElementType precision);

}  // namespace plumb
