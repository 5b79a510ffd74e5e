// What a rank receives of its stages' weights and gradients where data-parallel ranks share these out.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"

namespace plumb {

// Bytes of one stage, the mean of the ranks that share it out: their parts of a weight may differ by an element.
struct ShardTraffic {
  double gathered = 0;        // in F
  double gathered_again = 0;  // in R, and I or B
  double reduced = 0;         // in W or B
  double unsharded = 0;       // in UNSHARD
  double reduced_once = 0;    // in REDUCE_GRAD, without HSDP's sums over its copies
};

// By stage. What travels as it is, is counted by the plan's costs; what travels quantised weight by weight, as each
// rank's part of each has blocks of its own (common/cost/block_quantisation.hpp).
[[nodiscard]] std::vector<ShardTraffic> shard_traffic(const Plan& plan);

}  // namespace plumb
