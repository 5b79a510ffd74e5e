// Number of files, sockets included, that the processes of a run have open at once.
#pragma once

#include <cstdint>

#include "common/plan/plan.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb::exec {

// Files of every process of a run. 15 are always open on Linux with LibTorch 2.13: standard streams, pipes and event
// queues of LibTorch and Gloo, two connections to the store, listeners. The rest are data, weights, checkpoints and
// logs.
inline constexpr std::int64_t own_files = 24;

// Returns the most files of a rank: its own, a connection of Gloo to every other rank, and a link of this host
// (exec/transport/host_links.hpp) for each queue to or from a peer. Files that NCCL opens are not counted: only NCCL
// knows them. `saves` is true if it saves checkpoints.
[[nodiscard]] std::int64_t open_files_of_rank(const Plan& plan, const Schedule& lowered, int rank, bool saves);

// Returns the files of the process that hosts the run's store, beside its own: two connections a rank, and listeners.
[[nodiscard]] constexpr std::int64_t open_files_of_store(int ranks) { return 2 * std::int64_t{ranks} + 2; }

}  // namespace plumb::exec
