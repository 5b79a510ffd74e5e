#include "exec/transport/nccl/nccl_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "exec/transport/nccl/nccl.hpp"

namespace plumb::exec {
namespace {

constexpr const char* soname = "libnccl.so.2";

constexpr const char* another_library = "pip install nvidia-nccl-cu13, and name its libnccl.so.2 in PLUMB_NCCL_LIBRARY";

// Text of several lines, from a library, as one.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// LibTorch's wheel has its libraries in site-packages/torch/lib, NCCL's in site-packages/nvidia/nccl/lib.
std::string beside_torch() {
  std::string found;
  const auto look = [](dl_phdr_info* info, std::size_t, void* result) {
    const std::filesystem::path object(info->dlpi_name);
    if (object.filename() != "libc10.so") return 0;
    *static_cast<std::string*>(result) =
        (object.parent_path().parent_path().parent_path() / "nvidia/nccl/lib" / soname).string();
    return 1;
  };
  ::dl_iterate_phdr(look, &found);
  std::error_code ignored;
  return std::filesystem::exists(found, ignored) ? found : "";
}

std::vector<std::string> places(const std::string& path) {
  if (!path.empty()) return {path};
  const char* named = std::getenv("PLUMB_NCCL_LIBRARY");
  if (named != nullptr && *named != '\0') return {named};
  std::vector<std::string> all{soname};
  if (std::string beside = beside_torch(); !beside.empty()) all.push_back(std::move(beside));
  return all;
}

template <class Function>
void find(const NcclLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library.handle.get(), name));
  if (function != nullptr) return;
  throw InputError(
      "--transport", fmt::format("{} has no {}: it is too old, or not NCCL", library.path, name),
      fmt::format("'nccl' needs NCCL {} or newer: pip install nvidia-nccl-cu13", nccl_version_text(oldest_nccl)));
}

void find_all(NcclLibrary& library) {
  NcclFunctions& call = library.call;
  find(library, "ncclGetVersion", call.get_version);
  find(library, "ncclGetUniqueId", call.get_unique_id);
  find(library, "ncclGetErrorString", call.get_error_string);
  find(library, "ncclGetLastError", call.get_last_error);
  find(library, "ncclCommInitRankConfig", call.comm_init_rank_config);
  find(library, "ncclCommDestroy", call.comm_destroy);
  find(library, "ncclCommAbort", call.comm_abort);
  find(library, "ncclCommGetAsyncError", call.comm_get_async_error);
  find(library, "ncclGroupStart", call.group_start);
  find(library, "ncclGroupEnd", call.group_end);
  find(library, "ncclSend", call.send);
  find(library, "ncclRecv", call.receive);
  find(library, "ncclAllReduce", call.all_reduce);
  find(library, "ncclAllGather", call.all_gather);
  find(library, "ncclReduceScatter", call.reduce_scatter);
  find(library, "ncclReduce", call.reduce);
  find(library, "ncclBroadcast", call.broadcast);
}

std::string hint_for(const NcclLibrary& library, ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "is there a GPU, and its driver? nvidia-smi tells; the driver must be new enough for NCCL's CUDA";
    case ncclSystemError:
    case ncclRemoteError:
      return "NCCL_DEBUG=INFO tells more; NCCL_SOCKET_IFNAME and NCCL_IB_HCA name the network to use";
    case ncclInvalidUsage:
      return library.version >= nccl_with_shared_gpus
                 ? "several ranks on one GPU need NCCL_MULTI_RANK_GPU_ENABLE=1; NCCL_DEBUG=WARN tells more"
                 : fmt::format(
                       "two ranks on one GPU need NCCL {} and NCCL_MULTI_RANK_GPU_ENABLE=1; NCCL_DEBUG=WARN tells more",
                       nccl_version_text(nccl_with_shared_gpus));
    default:
      return "NCCL_DEBUG=WARN tells more";
  }
}

// LibTorch may have loaded another one, whose functions would then be called from within this one: it would take that
// one's communicators for broken.
void require_alone(const NcclLibrary& library) {
  void* const first = ::dlsym(RTLD_DEFAULT, "ncclGetVersion");
  if (first == nullptr || first == ::dlsym(library.handle.get(), "ncclGetVersion")) return;
  Dl_info of{};
  const bool known = ::dladdr(first, &of) != 0 && of.dli_fname != nullptr;
  throw InputError("--transport",
                   fmt::format("'nccl' would mix {} with {}, which LibTorch has loaded", library.path,
                               known ? of.dli_fname : "another one"),
                   fmt::format("LD_PRELOAD={} beside PLUMB_NCCL_LIBRARY, or neither of them", library.path));
}

}  // namespace

std::string nccl_version_text(int version) {
  // Until 2.8 the minor version had one digit.
  const int scale = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / scale, version % scale / 100, version % 100);
}

std::shared_ptr<const NcclLibrary> load_nccl(const std::string& path) {
  auto library = std::make_shared<NcclLibrary>();
  std::string refused;
  for (const std::string& place : places(path)) {
    void* handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* error = ::dlerror();
      refused += (refused.empty() ? "" : "; ") + one_line(error == nullptr ? place : error);
      continue;
    }
    library->path = place;
    // It starts threads of its own: it stays loaded until the process ends.
    library->handle = std::shared_ptr<void>(handle, [](void*) {});
    break;
  }
  if (!library->handle) {
    throw InputError("--transport", fmt::format("'nccl' cannot load NCCL: {}", refused), another_library);
  }
  find_all(*library);
  if (const ncclResult_t result = library->call.get_version(&library->version);
      result != ncclSuccess || library->version <= 0) {
    throw InputError("--transport",
                     fmt::format("{} does not tell its version: {}", library->path,
                                 one_line(library->call.get_error_string(result))),
                     another_library);
  }
  require_alone(*library);
  if (library->version < oldest_nccl) {
    throw InputError("--transport",
                     fmt::format("{} is NCCL {}, and 'nccl' needs {} or newer", library->path,
                                 nccl_version_text(library->version), nccl_version_text(oldest_nccl)),
                     another_library);
  }
  return library;
}

RunError nccl_error(const NcclLibrary& library, const std::string& where, const std::string& doing,
                    ncclResult_t result) {
  std::string problem = fmt::format("{}: NCCL {} says: {}", doing, nccl_version_text(library.version),
                                    one_line(library.call.get_error_string(result)));
  const char* last = library.call.get_last_error(nullptr);
  if (last != nullptr && *last != '\0') problem += fmt::format(" ({})", one_line(last));
  return RunError(where, problem, hint_for(library, result));
}

NcclFound require_nccl(const std::string& library_file) {
  const auto loaded = load_nccl(library_file);
  const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return {.version = nccl_version_text(loaded->version),
          .file = loaded->path,
          .shares_devices =
              loaded->version >= nccl_with_shared_gpus && shares != nullptr && std::string_view(shares) == "1"};
}

}  // namespace plumb::exec
