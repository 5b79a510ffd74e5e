// Ranks as threads that talk through the fake library.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "exec/launch/launch.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/nccl/nccl.hpp"
#include "exec/transport/rendezvous.hpp"
#include "tests/exec/device/async_device.hpp"
#include "tests/exec/fake_nccl/fake_nccl.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec {

class FakeNccl {
 public:
  explicit FakeNccl(const FakeNcclScript& script = {}) : handle_(::dlopen(PLUMB_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw RunError("fake NCCL", ::dlerror());
    reinterpret_cast<FakeNcclReset>(::dlsym(handle_, fake_nccl_reset_name))(&script);
  }
  [[nodiscard]] FakeNcclCounts counts() const {
    FakeNcclCounts counts;
    reinterpret_cast<FakeNcclCount>(::dlsym(handle_, fake_nccl_count_name))(&counts);
    return counts;
  }

 private:
  void* handle_;
};

struct NcclRun {
  std::vector<CommunicatorSpec> communicators;
  std::size_t message_bytes = 64;
  Seconds start_timeout{20};
  test::Speeds speeds = {};
};

using NcclRankMain = std::function<void(Transport& transport, test::AsyncDevice& device)>;

// One thread per rank, each with its device; errors as run_on_threads throws them.
inline void run_nccl_ranks(int ranks, const NcclRun& run, const NcclRankMain& rank_main) {
  Board board;
  auto controls = make_local_transports(ranks);
  std::vector<std::unique_ptr<test::AsyncDevice>> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(std::make_unique<test::AsyncDevice>(0, run.speeds));
  const auto outer = make_local_transports(ranks);
  run_on_threads(outer, [&](Transport& place) {
    const auto rank = static_cast<std::size_t>(place.rank());
    std::unique_ptr<Transport> transport;
    try {
      NcclOptions options{.communicators = run.communicators,
                          .message_bytes = {run.message_bytes},
                          .start_timeout = run.start_timeout,
                          .library_file = PLUMB_FAKE_NCCL};
      transport = make_nccl_transport(options, std::move(controls[rank]), *devices[rank], board.rendezvous());
      rank_main(*transport, *devices[rank]);
    } catch (const Stopped&) {
      throw;
    } catch (const std::exception& error) {
      // As the runner does: the others are told, the communicators end.
      if (transport) transport->abort(error.what());
      throw;
    }
  });
}

}  // namespace plumb::exec
