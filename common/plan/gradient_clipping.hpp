// Gradients that are scaled by the norm of all (arXiv 1211.5063, algorithm 1): how long the norm takes.
#pragma once

#include "common/plan/plan.hpp"

namespace plumb {

// Until all ranks of the layout know the norm: an all-reduce of one number over them. Every rank's steps wait for it,
// and so for the last gradient of all ranks: what a zero-bubble schedule's own steps would hide, unless it validates
// later (arXiv 2401.10241, section 4). Zero where nothing is clipped. Reading the gradients for it, and scaling them,
// is part of the optimizer's time.
[[nodiscard]] Seconds clipping_time(const Plan& plan);

}  // namespace plumb
