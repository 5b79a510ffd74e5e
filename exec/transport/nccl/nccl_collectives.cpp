#include "exec/transport/nccl/nccl_collectives.hpp"

#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {
namespace {

ncclDataType_t nccl_type(ElementType type) {
  switch (type) {
    case ElementType::fp32:
      return ncclFloat32;
    case ElementType::bf16:
      return ncclBfloat16;
    case ElementType::fp16:
      return ncclFloat16;
    case ElementType::fp64:
      return ncclFloat64;
    case ElementType::int64:
      return ncclInt64;
  }
  return ncclInt8;
}

ncclRedOp_t nccl_reduction(Reduction reduction) { return reduction == Reduction::maximum ? ncclMax : ncclSum; }

// Parts that are not equal, one by one: NCCL's own collectives have none such, and ProcessGroupNCCL of PyTorch
// (torch/csrc/distributed/c10d) does the same.
ncclResult_t put_parts(const NcclFunctions& nccl, const CollectiveCall& call, const CollectiveValue& value,
                       const NcclCommunicators::Member& member, std::size_t ranks) {
  auto* const stream = static_cast<cudaStream_t>(member.stream->native());
  const ncclDataType_t type = nccl_type(call.type);
  for (std::size_t part = 0; part < ranks; ++part) {
    const std::size_t count = elements_of_part(value.count, ranks, part);
    std::byte* const at =
        value.data + begin_of_part(value.count, ranks, part) * static_cast<std::size_t>(element_bytes(call.type));
    const int root = static_cast<int>(part);
    const ncclResult_t result =
        count == 0 ? ncclSuccess
        : call.kind == Collective::all_gather
            ? nccl.broadcast(at, at, count, type, root, member.communicator, stream)
            : nccl.reduce(at, at, count, type, nccl_reduction(call.reduction), root, member.communicator, stream);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t put_value(const NcclFunctions& nccl, const CollectiveCall& call, const CollectiveValue& value,
                       const NcclCommunicators::Member& member, std::size_t ranks) {
  auto* const stream = static_cast<cudaStream_t>(member.stream->native());
  const ncclDataType_t type = nccl_type(call.type);
  const ncclComm_t communicator = member.communicator;
  const ncclRedOp_t reduction = nccl_reduction(call.reduction);
  if (call.kind == Collective::all_reduce) {
    return nccl.all_reduce(value.data, value.data, value.count, type, reduction, communicator, stream);
  }
  if (call.kind != Collective::all_gather && call.kind != Collective::reduce_scatter) return ncclInvalidArgument;
  if (value.count % ranks != 0) return put_parts(nccl, call, value, member, ranks);
  const std::size_t each = value.count / ranks;
  std::byte* const own =
      value.data + static_cast<std::size_t>(member.rank) * each * static_cast<std::size_t>(element_bytes(call.type));
  return call.kind == Collective::all_gather
             ? nccl.all_gather(own, value.data, each, type, communicator, stream)
             : nccl.reduce_scatter(value.data, own, each, type, reduction, communicator, stream);
}

}  // namespace

ncclResult_t put_collective(const NcclFunctions& nccl, const CollectiveCall& call,
                            const NcclCommunicators::Member& member, std::size_t ranks) {
  auto* const stream = static_cast<cudaStream_t>(member.stream->native());
  const ncclDataType_t type = nccl_type(call.type);
  const ncclComm_t communicator = member.communicator;
  const ncclRedOp_t reduction = nccl_reduction(call.reduction);
  for (const CollectiveValue& value : call.bucket) {
    const ncclResult_t result = put_value(nccl, call, value, member, ranks);
    if (result != ncclSuccess) return result;
  }
  if (!call.bucket.empty()) return ncclSuccess;
  switch (call.kind) {
    case Collective::all_reduce:
      return nccl.all_reduce(call.input, call.output, call.count, type, reduction, communicator, stream);
    case Collective::all_gather:
      return nccl.all_gather(call.input, call.output, call.count, type, communicator, stream);
    case Collective::reduce_scatter:
      return nccl.reduce_scatter(call.input, call.output, call.count, type, reduction, communicator, stream);
    case Collective::all_to_all: {
      const std::size_t part = call.count * static_cast<std::size_t>(element_bytes(call.type));
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const int other = static_cast<int>(peer);
        ncclResult_t result = nccl.send(call.input + peer * part, call.count, type, other, communicator, stream);
        if (result == ncclSuccess) {
          result = nccl.receive(call.output + peer * part, call.count, type, other, communicator, stream);
        }
        if (result != ncclSuccess) return result;
      }
      return ncclSuccess;
    }
  }
  return ncclInvalidArgument;
}

Bytes received_by(const CollectiveCall& call, std::size_t ranks, std::size_t position) {
  // Of a whole value in parts as near to equal as can be. An all-reduce is a reduce-scatter and an all-gather.
  const auto of_whole = [&](Collective kind, std::size_t count) {
    const std::size_t own = elements_of_part(count, ranks, position);
    return (kind == Collective::all_gather ? 0 : (ranks - 1) * own) +
           (kind == Collective::reduce_scatter ? 0 : count - own);
  };
  const auto of_sum = [&](std::size_t count) { return of_whole(Collective::all_reduce, count); };
  std::size_t elements = (ranks - 1) * call.count;
  if (!call.bucket.empty()) {
    elements = 0;
    for (const CollectiveValue& value : call.bucket) elements += of_whole(call.kind, value.count);
  } else if (call.kind == Collective::all_reduce) {
    elements = of_sum(call.count);
  }
  return {static_cast<std::int64_t>(elements) * element_bytes(call.type)};
}

}  // namespace plumb::exec
