// Which weights a microbatch uses when a step has several optimizer steps, and how many copies that takes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// By stage · microbatches + microbatch: the version that F uses, and with it I and W; version v is what v updates made.
// Stashed (PipeDream, arXiv 1806.03377, section 3.3): the newest on the rank when F runs. Delayed (PipeDream-2BW,
// arXiv 2006.09503, section 3.1): of the microbatches of update u version max(0, u−1), on every stage. All 0 with one
// update a step. The schedule must be valid.
[[nodiscard]] std::vector<std::int32_t> weight_versions(const Schedule& schedule);

// Per stage, the most versions that its rank keeps at a time in the order of its list: the newest, those that
// microbatches between their F and their last backward action use, and those that a later F will use.
[[nodiscard]] std::vector<int> weight_versions_kept(const Schedule& schedule);

// The actions that change how many versions their stage has, and by how many: a STEP adds one where the one that it
// updates is still needed, what ends the last microbatch of a version that is not the newest takes one away. Each stage
// begins a step with one. The schedule must be valid.
[[nodiscard]] std::map<Action, int> weight_version_changes(const Schedule& schedule);

}  // namespace plumb
