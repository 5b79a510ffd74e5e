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

}  // namespace

ncclResult_t put_collective(const NcclFunctions& nccl, const CollectiveCall& call,
                            const NcclCommunicators::Member& member, std::size_t ranks) {
  auto* const stream = static_cast<cudaStream_t>(member.stream->native());
  const ncclDataType_t type = nccl_type(call.type);
  const ncclComm_t communicator = member.communicator;
  const ncclRedOp_t reduction = call.reduction == Reduction::maximum ? ncclMax : ncclSum;
  switch (call.kind) {
    case Collective::all_reduce:
      for (const std::span<float> values : call.bucket) {
        const ncclResult_t result =
            nccl.all_reduce(values.data(), values.data(), values.size(), type, reduction, communicator, stream);
        if (result != ncclSuccess) return result;
      }
      if (!call.bucket.empty()) return ncclSuccess;
      return nccl.all_reduce(call.input, call.output, call.count, type, reduction, communicator, stream);
    case Collective::all_gather:
      return nccl.all_gather(call.input, call.output, call.count, type, communicator, stream);
    case Collective::reduce_scatter:
      return nccl.reduce_scatter(call.input, call.output, call.count, type, reduction, communicator, stream);
    case Collective::broadcast:
      return nccl.broadcast(call.input, call.output, call.count, type, call.root, communicator, stream);
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
  // A reduce-scatter into parts as near to equal as can be, and an all-gather of these.
  const auto of_sum = [&](std::size_t count) {
    const std::size_t own = elements_of_part(count, ranks, position);
    return (ranks - 1) * own + count - own;
  };
  std::size_t elements = (ranks - 1) * call.count;
  if (!call.bucket.empty()) {
    elements = 0;
    for (const std::span<float> values : call.bucket) elements += of_sum(values.size());
  } else if (call.kind == Collective::all_reduce) {
    elements = of_sum(call.count);
  } else if (call.kind == Collective::broadcast) {
    elements = position == static_cast<std::size_t>(call.root) ? 0 : call.count;
  }
  return {static_cast<std::int64_t>(elements) * element_bytes(call.type)};
}

}  // namespace plumb::exec
