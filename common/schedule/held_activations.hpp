// Whose activations an action brings to a rank or takes from it: the one count behind peaks, moments and limits.
#pragma once

#include "common/schedule/action_index.hpp"

namespace plumb {

// +1 where a microbatch's activations of a stage come to life on the rank (F, or R where that redoes it) or arrive, −1
// where the last of them are freed (W or B) or leave it, else 0. EVICT and LOAD move them between a stage's own rank
// and its partner. `action` stands in the list of `rank` and is in range.
[[nodiscard]] int activation_change(const Schedule& schedule, const ActionIndex& index, int rank, const Action& action);

}  // namespace plumb
