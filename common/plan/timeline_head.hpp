// What a plan's timelines say of the plan, alike in predicted and measured ones.
#pragma once

#include <string>

#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Model FLOPs of one step of the plan: the numerator of MFU.
[[nodiscard]] Flops trained_flops(const Plan& plan);

// A timeline without ranks and steps.
[[nodiscard]] Timeline timeline_head(const Plan& plan, const Schedule& lowered, TimelineSource source,
                                     const std::string& producer);

}  // namespace plumb
