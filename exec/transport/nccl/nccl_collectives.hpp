// Collectives as NCCL calls.
#pragma once

#include "exec/transport/nccl/nccl_communicators.hpp"

namespace plumb::exec {

// Puts a collective on the member's stream, inside a group, of a communicator of so many ranks.
[[nodiscard]] ncclResult_t put_collective(const NcclFunctions& nccl, const CollectiveCall& call,
                                          const NcclCommunicators::Member& member, std::size_t ranks);

}  // namespace plumb::exec
