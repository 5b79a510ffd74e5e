// CLIP: the gradients of all ranks are scaled by the norm of the whole.
#pragma once

#include "exec/run/rank_stages.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// All ranks of `world` call it once a step, when their gradients are summed; between hosts. `schedule`: of two replicas
// the first one's gradients count. Returns the norm before: the same bits on every rank. Throws as
// Collectives::all_gather.
[[nodiscard]] double clip_gradients(const RankStages& stages, const Schedule& schedule, double limit, Transport& world,
                                    Clock::time_point deadline);

}  // namespace plumb::exec
