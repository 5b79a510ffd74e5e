// The fixed schedules that ZB auto starts from.
#pragma once

#include "common/schedule/zb_auto/model.hpp"

namespace plumb::zb_auto {

// Those of the registry whose placement is the problem's, up to the ranks' numbers, as steps (B is I and W): they need
// not fit the limits.
[[nodiscard]] std::vector<StepLists> fixed_schedules(const Model& model);

// One microbatch after the other through all stages: fits whatever fits at all.
[[nodiscard]] StepLists one_at_a_time(const Model& model);

}  // namespace plumb::zb_auto
