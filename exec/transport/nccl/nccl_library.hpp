// libnccl, found and loaded while the program runs: a run on the CPU does not need its 200 MB.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace plumb::exec {

// What the transport calls, under the types of nccl.h.
struct NcclFunctions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
};

struct NcclLibrary {
  std::string path;
  int version = 0;  // as NCCL_VERSION_CODE
  NcclFunctions call;
  std::shared_ptr<void> handle;
};

// The oldest that has all of the above with the meaning that is used, and the first that lets ranks share a GPU.
inline constexpr int oldest_nccl = NCCL_VERSION(2, 18, 1);
inline constexpr int nccl_with_shared_gpus = NCCL_VERSION(2, 30, 3);

[[nodiscard]] std::string nccl_version_text(int version);  // "2.30.4"

// Loads `path`, or where it is empty the first that is found: PLUMB_NCCL_LIBRARY, a file; libnccl.so.2 as the system
// finds it (one that LibTorch has loaded already, LD_LIBRARY_PATH, the system's folders); the one of the PyPI packages
// beside LibTorch (nvidia/nccl/lib). Throws InputError (where = "--transport") in one line with a hint when there is
// none, when it lacks a function, or when it is older than oldest_nccl.
[[nodiscard]] std::shared_ptr<const NcclLibrary> load_nccl(const std::string& path = "");

// What a call that failed means, in one line with a hint: NCCL's own words, and those of its last error.
[[nodiscard]] RunError nccl_error(const NcclLibrary& library, const std::string& where, const std::string& doing,
                                  ncclResult_t result);

}  // namespace plumb::exec
