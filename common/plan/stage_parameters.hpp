// How many parameters a rank of each stage has, by the shapes of the plan's model: what its costs count too.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/plan.hpp"

namespace plumb {

[[nodiscard]] std::vector<std::int64_t> stage_parameters(const Plan& plan);

}  // namespace plumb
