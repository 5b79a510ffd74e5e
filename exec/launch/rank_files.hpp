// How many files, sockets among them, the processes of a run have open at once.
#pragma once

#include <cstdint>

#include "common/plan/plan.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb::exec {

// What every process of a run has. Standard streams, pipes and event queues of LibTorch and Gloo, two connections to
// the store, listeners: 15 are always there on Linux with LibTorch 2.13. The rest are files that are open for a while:
// data, weights, checkpoints, logs.
inline constexpr std::int64_t own_files = 24;

// The most that a rank has: its own, a connection of Gloo to every other rank, and a link of this host
// (exec/transport/host_links.hpp) for each queue to or from a rank that it talks to. What NCCL opens for itself is not
// in it: nobody but NCCL knows. `saves`: checkpoints.
[[nodiscard]] std::int64_t open_files_of_rank(const Plan& plan, const Schedule& lowered, int rank, bool saves);

// Of whoever hosts the run's store for so many ranks, beside its own: two connections of each, and listeners.
[[nodiscard]] constexpr std::int64_t open_files_of_store(int ranks) { return 2 * std::int64_t{ranks} + 2; }

}  // namespace plumb::exec
