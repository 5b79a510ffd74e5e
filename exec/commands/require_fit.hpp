// Whether ranks have the memory that their plans predict, and may open the files that they need: asked before any of
// them starts.
#pragma once

#include <cstdint>
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

// Throws InputError as require_open_files does, of ranks that are processes, or of whoever hosts the run's store.
enum class HostsStore : std::uint8_t { launcher, rank, another };
void require_files_of_ranks(const std::vector<PreparedPlan>& plans, const SessionOptions& options,
                            const std::vector<int>& ranks, HostsStore hosts);

}  // namespace plumb::exec
