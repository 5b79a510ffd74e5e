// Messages as torch.distributed.pipelining places and matches them: per directed pair of ranks the n-th receive meets
// the n-th send, activations and gradients alike, for its messages have no tags.
#pragma once

#include <vector>

#include "common/schedule/schedule.hpp"
#include "common/schedule/validate/validate.hpp"

namespace plumb {

// PyTorch's lowering (`_add_send_recv`): ranks take turns of one cell; a message's SEND goes behind the cell that makes
// it and its RECV to the end of what the other rank has by then. Two replicas sum their gradients at the end. The
// schedule must be valid and compute-only.
[[nodiscard]] Schedule lower_as_pytorch(const Schedule& compute_only);

// Per directed pair of ranks the first receive that meets another message's send. `lower` has a queue for activations
// and one for gradients, so what it makes may be crossed here.
[[nodiscard]] std::vector<ScheduleProblem> check_pytorch_queues(const Schedule& lowered);

}  // namespace plumb
