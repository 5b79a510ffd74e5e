// Whether ranks have the memory that their plans predict: asked before any of them allocates.
#pragma once

#include <vector>

#include "exec/commands/rank_work.hpp"
#include "exec/host/host.hpp"
#include "exec/launch/membership.hpp"

namespace plumb::exec {

// Those on the host of `member`, itself among them, as far as its launcher tells.
[[nodiscard]] std::vector<int> ranks_of_host(const Membership& member, const Environment& environment);

// The most that these ranks copy on their host where checkpoints are saved beside the steps.
[[nodiscard]] Bytes copied_to_save(const Plan& plan, const std::vector<int>& ranks);

// Throws InputError as require_memory does, of these ranks together; on GPUs, where those of NCCL have one each, of the
// one that needs most. What is copied to be saved beside the steps counts on the host. Nothing is needed where compute
// is emulated.
void require_fit(const std::vector<PreparedPlan>& plans, const SessionOptions& options, const std::vector<int>& ranks,
                 const Host& host);

}  // namespace plumb::exec
