// Which rank bounds a plan's step: in steady state all others wait for the one that needs longest for a microbatch.
#pragma once

#include <string>

#include "common/plan/plan.hpp"

namespace plumb {

struct Bottleneck {
  int rank = 0;
  Seconds time = {};  // its F, I, W and R of one microbatch, over all its stages
  Seconds mean = {};  // of all ranks: what a perfect balance would give
  bool operator==(const Bottleneck&) const = default;
};

// By the plan's costs alone, each rank on cores of its own; of equal ranks the first.
[[nodiscard]] Bottleneck bottleneck(const Plan& plan);

// "rank 3 (stages 3, 7): 41.00 ms a microbatch, 13.9% above the mean of the ranks".
[[nodiscard]] std::string describe_bottleneck(const Plan& plan);

}  // namespace plumb
