// CLIP: the gradients of all ranks are scaled by the norm of the whole.
#pragma once

#include "exec/run/rank_stages.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Once a step, when the gradients of a rank's stages are summed. `schedule`: of two replicas the first one's gradients
// count.
void find_squares(const RankStages& stages, const Schedule& schedule);

// All ranks of `world` call it behind that, on an asynchronous device when it has ended; between hosts. Returns the
// norm before: the same bits on every rank. Throws as Collectives::all_gather.
[[nodiscard]] double clip_gradients(const RankStages& stages, const Schedule& schedule, double limit, Transport& world,
                                    Clock::time_point deadline);

}  // namespace plumb::exec
