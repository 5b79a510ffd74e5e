// What products of a grid (2d to 3d) gather and make beside what a rank stores: on one rank.
#pragma once

#include "common/base/units.hpp"
#include "common/placement/placed_block.hpp"

namespace plumb {

struct Gathered {
  // Where F's gathered operands serve the backward, from F on, beside the parts that they were gathered from: weights
  // until I, inputs until W.
  Bytes kept = {};
  Bytes kept_for_weight = {};
  // The most that one site moves in a phase, each operand and result as large as it is before or behind its move.
  Bytes in_forward = {};
  Bytes in_input_gradient = {};
  Bytes inputs_for_weight = {};      // gathered again in W
  std::int64_t weight_gradient = 0;  // elements of the largest that W makes, before ranks share it out
};

// Of a block without moves nothing but `weight_gradient`.
[[nodiscard]] Gathered gathered(const PlacedBlock& placed, ElementType precision);

}  // namespace plumb
