// NCCL's C interface between threads of one process, with its rules: host memory stands for the device's, a FakeStream
// for a cudaStream_t. No tags; a send waits for its receive; a group ends as one; what is aborted ends.
#include "tests/exec/fake_nccl/fake_nccl.hpp"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/numbers.hpp"
#include "tests/exec/fake_nccl/fake_stream.hpp"

using plumb::exec::FakeNcclCounts;
using plumb::exec::FakeNcclScript;
using plumb::exec::FakeStream;

namespace {

enum class Kind { send, receive, all_reduce, all_gather, reduce_scatter, reduce, broadcast };

struct Operation {
  Kind kind = Kind::send;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t bytes = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  // or the root
  bool done = false;
};

struct Wire {
  std::deque<Operation*> sends;
  std::deque<Operation*> receives;
};

struct Meeting {
  std::vector<Operation*> parts;
  std::size_t come = 0;
};

// What the ranks of one communicator share.
struct Shared {
  int size = 0;
  int joined = 0;
  std::map<std::pair<int, int>, Wire> wires;  // from, to
  std::map<std::size_t, Meeting> meetings;    // by the number of the collective
};

// One lock for all: simple, and what is copied is small.
std::mutex& mutex = *new std::mutex;  // never gone: a rank may hang in here until the process ends
std::condition_variable& changed = *new std::condition_variable;
FakeNcclScript script;
FakeNcclCounts counts;
std::map<std::string, std::shared_ptr<Shared>> all_shared;  // by unique id
std::map<int, int> batches_of_rank;
int ids = 0;

std::size_t width(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat64:
    case ncclInt64:
      return 8;
    default:
      return 1;
  }
}

}  // namespace

// Never freed, so that a use after the end is seen and not a crash.
struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank = 0;
  bool over = false;
  ncclResult_t state = ncclSuccess;
  std::size_t collectives = 0;
};

namespace {

struct Put {
  ncclComm* communicator;
  FakeStream* stream;
  Operation operation;
};
thread_local int depth = 0;
thread_local std::vector<Put> group;

void match(ncclComm& communicator, Wire& wire) {
  while (!wire.sends.empty() && !wire.receives.empty()) {
    Operation* send = wire.sends.front();
    Operation* receive = wire.receives.front();
    wire.sends.pop_front();
    wire.receives.pop_front();
    if (send->bytes != receive->bytes) {
      ++counts.mismatches;
      communicator.state = ncclInvalidUsage;
      continue;  // both wait for ever, as the real ones may
    }
    std::memcpy(receive->output, send->input, send->bytes);
    send->done = receive->done = true;
  }
}

float value(const void* values, ncclDataType_t type, std::size_t index) {
  if (type == ncclFloat32) return static_cast<const float*>(values)[index];
  return plumb::kernels::from_bf16_bits(static_cast<const std::uint16_t*>(values)[index]);
}

// fp32 and bf16, from the last rank to the first, and each sum rounded: another order than between hosts.
void reduce(const Meeting& meeting, std::size_t begin, std::size_t count, void* into) {
  const Operation& first = *meeting.parts.front();
  for (std::size_t i = 0; i < count; ++i) {
    float total = value(meeting.parts.back()->input, first.type, begin + i);
    for (std::size_t rank = meeting.parts.size() - 1; rank-- > 0;) {
      const float next = value(meeting.parts[rank]->input, first.type, begin + i);
      total = first.reduction == ncclMax ? std::max(total, next) : total + next;
      if (first.type == ncclBfloat16) total = plumb::kernels::from_bf16_bits(plumb::kernels::bf16_bits(total));
    }
    if (first.type == ncclFloat32) {
      static_cast<float*>(into)[i] = total;
    } else {
      static_cast<std::uint16_t*>(into)[i] = plumb::kernels::bf16_bits(total);
    }
  }
}

// All ranks have come: what each gets is made from copies, since input and output may be the same.
void perform(ncclComm& communicator, Meeting& meeting) {
  const Operation& first = *meeting.parts.front();
  for (const Operation* part : meeting.parts) {
    const bool alike = part->kind == first.kind && part->bytes == first.bytes && part->type == first.type &&
                       part->reduction == first.reduction && part->peer == first.peer;
    if (alike) continue;
    ++counts.mismatches;
    communicator.state = ncclInvalidUsage;
    return;
  }
  std::vector<std::vector<char>> results;
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
    std::vector<char> result;
    if (first.kind == Kind::all_gather) {
      for (const Operation* part : meeting.parts) {
        const char* bytes = static_cast<const char*>(part->input);
        result.insert(result.end(), bytes, bytes + part->bytes);
      }
    } else if (first.kind == Kind::broadcast) {
      const char* bytes = static_cast<const char*>(meeting.parts[static_cast<std::size_t>(first.peer)]->input);
      result.assign(bytes, bytes + first.bytes);
    } else {
      result.resize(first.bytes);
      const std::size_t count = first.bytes / width(first.type);
      reduce(meeting, first.kind == Kind::reduce_scatter ? rank * count : 0, count, result.data());
    }
    results.push_back(std::move(result));
  }
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
    const bool gets = first.kind != Kind::reduce || static_cast<int>(rank) == first.peer;
    if (gets) std::memcpy(meeting.parts[rank]->output, results[rank].data(), results[rank].size());
    meeting.parts[rank]->done = true;
  }
  ++counts.collectives;
}

void post(ncclComm& communicator, Operation& operation) {
  Shared& shared = *communicator.shared;
  if (operation.kind == Kind::send || operation.kind == Kind::receive) {
    const bool sends = operation.kind == Kind::send;
    Wire& wire =
        sends ? shared.wires[{communicator.rank, operation.peer}] : shared.wires[{operation.peer, communicator.rank}];
    (sends ? wire.sends : wire.receives).push_back(&operation);
    match(communicator, wire);
    return;
  }
  const std::size_t number = communicator.collectives++;
  Meeting& meeting = shared.meetings[number];
  meeting.parts.resize(static_cast<std::size_t>(shared.size));
  meeting.parts[static_cast<std::size_t>(communicator.rank)] = &operation;
  if (++meeting.come < meeting.parts.size()) return;
  perform(communicator, meeting);
  shared.meetings.erase(number);
}

void take_back(ncclComm& communicator, Operation& operation) {
  for (auto& [ends, wire] : communicator.shared->wires) {
    std::erase(wire.sends, &operation);
    std::erase(wire.receives, &operation);
  }
  for (auto& [number, meeting] : communicator.shared->meetings) {
    for (Operation*& part : meeting.parts) {
      if (part != &operation) continue;
      part = nullptr;
      --meeting.come;
    }
  }
}

// On the stream's thread: what a kernel does.
void run(ncclComm& communicator, std::vector<Operation>& operations) {
  std::unique_lock lock(mutex);
  ++counts.batches;
  const int number = batches_of_rank[communicator.rank]++;
  const bool faulty = script.faulty_rank == communicator.rank && number >= script.faulty_batch;
  if (faulty && script.fault == FakeNcclScript::Fault::asynchronous_error) communicator.state = ncclRemoteError;
  const bool hangs = faulty && script.fault != FakeNcclScript::Fault::none;
  if (!hangs && !communicator.over) {
    for (Operation& operation : operations) post(communicator, operation);
    changed.notify_all();
  }
  const auto all_done = [&] {
    for (const Operation& operation : operations) {
      if (!operation.done) return false;
    }
    return true;
  };
  changed.wait(lock, [&] { return communicator.over || (!hangs && all_done()); });
  for (Operation& operation : operations) take_back(communicator, operation);
}

void launch(ncclComm* communicator, FakeStream* stream, std::vector<Operation> operations) {
  auto kept = std::make_shared<std::vector<Operation>>(std::move(operations));
  stream->put([communicator, kept] { run(*communicator, *kept); });
}

ncclResult_t put(ncclComm* communicator, cudaStream_t stream, const Operation& operation) {
  {
    const std::scoped_lock lock(mutex);
    if (communicator->over) {
      ++counts.used_after_abort;
      return ncclInvalidUsage;
    }
  }
  auto* fake = reinterpret_cast<FakeStream*>(stream);
  if (depth == 0) {
    launch(communicator, fake, {operation});
  } else {
    group.push_back({communicator, fake, operation});
  }
  return ncclSuccess;
}

ncclResult_t end(ncclComm* communicator, int& count) {
  const std::scoped_lock lock(mutex);
  if (communicator->over) {
    ++counts.used_after_abort;
    return ncclInvalidUsage;
  }
  communicator->over = true;
  ++count;
  changed.notify_all();
  return ncclSuccess;
}

}  // namespace

extern "C" {

void fake_nccl_reset(const FakeNcclScript* wanted) {
  const std::scoped_lock lock(mutex);
  script = *wanted;
  counts = {};
  batches_of_rank.clear();
}

void fake_nccl_count(FakeNcclCounts* wanted) {
  const std::scoped_lock lock(mutex);
  *wanted = counts;
}

ncclResult_t ncclGetVersion(int* version) {
  const std::scoped_lock lock(mutex);
  *version = script.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::scoped_lock lock(mutex);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &++ids, sizeof ids);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "invalid usage";
  }
}

const char* ncclGetLastError(ncclComm_t /*communicator*/) { return "the fake's\nlast words\n"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* /*config*/) {
  std::unique_lock lock(mutex);
  if (script.init_result != 0) return static_cast<ncclResult_t>(script.init_result);
  auto& shared = all_shared[std::string(id.internal, sizeof id.internal)];
  if (!shared) shared = std::make_shared<Shared>();
  const std::shared_ptr<Shared> mine = shared;
  mine->size = size;
  if (!(script.hang_in_init && script.faulty_rank == rank)) ++mine->joined;
  changed.notify_all();
  changed.wait(lock, [&] { return mine->joined == size; });
  auto* made = new ncclComm;
  made->shared = mine;
  made->rank = rank;
  *communicator = made;
  ++counts.joined;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return end(communicator, counts.destroyed); }
ncclResult_t ncclCommAbort(ncclComm_t communicator) { return end(communicator, counts.aborted); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  const std::scoped_lock lock(mutex);
  *state = communicator->state;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  std::vector<Put> ended = std::exchange(group, {});
  while (!ended.empty()) {
    ncclComm* communicator = ended.front().communicator;
    FakeStream* stream = ended.front().stream;
    std::vector<Operation> operations;
    for (const Put& one : ended) {
      if (one.communicator != communicator) continue;
      if (one.stream != stream) return ncclInvalidUsage;
      operations.push_back(one.operation);
    }
    std::erase_if(ended, [&](const Put& one) { return one.communicator == communicator; });
    launch(communicator, stream, std::move(operations));
  }
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return put(communicator, stream,
             {.kind = Kind::send, .input = data, .bytes = count * width(type), .type = type, .peer = peer});
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return put(communicator, stream,
             {.kind = Kind::receive, .output = data, .bytes = count * width(type), .type = type, .peer = peer});
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t communicator, cudaStream_t stream) {
  return put(communicator, stream,
             {.kind = Kind::all_reduce,
              .input = input,
              .output = output,
              .bytes = count * width(type),
              .type = type,
              .reduction = reduction});
}

ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return put(communicator, stream,
             {.kind = Kind::all_gather, .input = input, .output = output, .bytes = count * width(type), .type = type});
}

ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t communicator, cudaStream_t stream) {
  return put(communicator, stream,
             {.kind = Kind::reduce_scatter,
              .input = input,
              .output = output,
              .bytes = count * width(type),
              .type = type,
              .reduction = reduction});
}

ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  return put(communicator, stream,
             {.kind = Kind::reduce,
              .input = input,
              .output = output,
              .bytes = count * width(type),
              .type = type,
              .reduction = reduction,
              .peer = root});
}

ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return put(communicator, stream,
             {.kind = Kind::broadcast,
              .input = input,
              .output = output,
              .bytes = count * width(type),
              .type = type,
              .peer = root});
}
}
