// ZB auto's search: many schedules, the best of them improved.
#pragma once

#include "common/schedule/zb_auto/model.hpp"

namespace plumb::zb_auto {

[[nodiscard]] Candidate best_lists(const Model& model);

// zb_auto_bound, of a model.
[[nodiscard]] double bound(const Model& model);

}  // namespace plumb::zb_auto
