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

// What NCCL's calls of one collective have in common.
class Calls {
 public:
  Calls(const NcclFunctions& nccl, const CollectiveCall& call, const NcclCommunicators::Member& member)
      : nccl_(nccl),
        type_(nccl_type(call.type)),
        reduction_(nccl_reduction(call.reduction)),
        communicator_(member.communicator),
        stream_(member.native()) {}

  [[nodiscard]] ncclResult_t all_reduce(const void* input, void* output, std::size_t count) const {
    return nccl_.all_reduce(input, output, count, type_, reduction_, communicator_, stream_);
  }
  [[nodiscard]] ncclResult_t all_gather(const void* input, void* output, std::size_t count) const {
    return nccl_.all_gather(input, output, count, type_, communicator_, stream_);
  }
  [[nodiscard]] ncclResult_t reduce_scatter(const void* input, void* output, std::size_t count) const {
    return nccl_.reduce_scatter(input, output, count, type_, reduction_, communicator_, stream_);
  }
  [[nodiscard]] ncclResult_t broadcast(const void* input, void* output, std::size_t count, int root) const {
    return nccl_.broadcast(input, output, count, type_, root, communicator_, stream_);
  }
  [[nodiscard]] ncclResult_t reduce(const void* input, void* output, std::size_t count, int root) const {
    return nccl_.reduce(input, output, count, type_, reduction_, root, communicator_, stream_);
  }
  // To the same rank and from it.
  [[nodiscard]] ncclResult_t exchange(const void* input, void* output, std::size_t count, int peer) const {
    const ncclResult_t result = nccl_.send(input, count, type_, peer, communicator_, stream_);
    return result != ncclSuccess ? result : nccl_.receive(output, count, type_, peer, communicator_, stream_);
  }

 private:
  const NcclFunctions& nccl_;
  ncclDataType_t type_;
  ncclRedOp_t reduction_;
  ncclComm_t communicator_;
  cudaStream_t stream_;
};

// Parts that are not equal, one by one: NCCL's own collectives have none such, and ProcessGroupNCCL of PyTorch
// (torch/csrc/distributed/c10d) does the same.
ncclResult_t put_parts(const Calls& calls, const CollectiveCall& call, const CollectiveValue& value,
                       std::size_t ranks) {
  for (std::size_t part = 0; part < ranks; ++part) {
    const std::size_t count = elements_of_part(value.count, ranks, part);
    if (count == 0) continue;
    std::byte* const at =
        value.data + begin_of_part(value.count, ranks, part) * static_cast<std::size_t>(element_bytes(call.type));
    const int root = static_cast<int>(part);
    const ncclResult_t result =
        call.kind == Collective::all_gather ? calls.broadcast(at, at, count, root) : calls.reduce(at, at, count, root);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t put_value(const Calls& calls, const CollectiveCall& call, const CollectiveValue& value, std::size_t rank,
                       std::size_t ranks) {
  if (call.kind == Collective::all_reduce) return calls.all_reduce(value.data, value.data, value.count);
  if (call.kind != Collective::all_gather && call.kind != Collective::reduce_scatter) return ncclInvalidArgument;
  if (value.count % ranks != 0) return put_parts(calls, call, value, ranks);
  const std::size_t each = value.count / ranks;
  std::byte* const own = value.data + rank * each * static_cast<std::size_t>(element_bytes(call.type));
  return call.kind == Collective::all_gather ? calls.all_gather(own, value.data, each)
                                             : calls.reduce_scatter(value.data, own, each);
}

}  // namespace

ncclResult_t put_collective(const NcclFunctions& nccl, const CollectiveCall& call,
                            const NcclCommunicators::Member& member, std::size_t ranks) {
  const Calls calls(nccl, call, member);
  for (const CollectiveValue& value : call.bucket) {
    const ncclResult_t result = put_value(calls, call, value, static_cast<std::size_t>(member.rank), ranks);
    if (result != ncclSuccess) return result;
  }
  if (!call.bucket.empty()) return ncclSuccess;
  switch (call.kind) {
    case Collective::all_reduce:
      return calls.all_reduce(call.input, call.output, call.count);
    case Collective::all_gather:
      return calls.all_gather(call.input, call.output, call.count);
    case Collective::reduce_scatter:
      return calls.reduce_scatter(call.input, call.output, call.count);
    case Collective::broadcast:
      return calls.broadcast(call.input, call.output, call.count, call.root);
    case Collective::all_to_all: {
      const std::size_t part = call.count * static_cast<std::size_t>(element_bytes(call.type));
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const ncclResult_t result =
            calls.exchange(call.input + peer * part, call.output + peer * part, call.count, static_cast<int>(peer));
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
  } else if (call.kind == Collective::broadcast) {
    elements = position == static_cast<std::size_t>(call.root) ? 0 : call.count;
  }
  return {static_cast<std::int64_t>(elements) * element_bytes(call.type)};
}

}  // namespace plumb::exec
