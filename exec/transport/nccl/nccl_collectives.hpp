// Collectives as NCCL calls.
#pragma once

#include "exec/transport/nccl/nccl_communicators.hpp"

namespace plumb::exec {

// Puts a collective on the member's stream, inside a group, of a communicator of so many ranks.
[[nodiscard]] ncclResult_t put_collective(const NcclFunctions& nccl, const CollectiveCall& call,
                                          const NcclCommunicators::Member& member, std::size_t ranks);

// Payload bytes that it brings to the rank at `position` of so many: those of the same collective between hosts
// (exec/transport/collectives/collectives.hpp), which NCCL's rings move as well.
[[nodiscard]] Bytes received_by(const CollectiveCall& call, std::size_t ranks, std::size_t position);

}  // namespace plumb::exec
