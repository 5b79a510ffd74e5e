#include "exec/transport/gloo/tcp_store.hpp"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/error.hpp"
#include "exec/device/torch_error.hpp"

namespace plumb::exec {
namespace {

constexpr auto past_timeout = std::chrono::seconds(5);  // for LibTorch to report itself that nobody listens

}  // namespace

c10d::TCPStoreOptions store_options(int port, bool server) {
  // Reads TORCH_CPP_LOG_LEVEL, which nothing else does: LibTorch prints pages of stack for errors that reach us anyway.
  static std::once_flag reads_level;
  std::call_once(reads_level, [] { c10::initLogging(); });
  c10d::TCPStoreOptions made;
  made.port = static_cast<std::uint16_t>(port);
  made.isServer = server;
  made.waitWorkers = false;
  made.useLibUV = false;  // Debian's LibTorch is built without it
  return made;
}

// LibTorch greets the store as soon as it is connected and waits for the answer without a deadline: on a thread that is
// left behind if there is none.
c10::intrusive_ptr<c10d::TCPStore> connect_store(const std::string& address, int port, Seconds timeout) {
  c10d::TCPStoreOptions options = store_options(port, false);
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout.value * 1e3));
  const std::string where = fmt::format("{}:{}", address, port);
  std::packaged_task<c10::intrusive_ptr<c10d::TCPStore>()> connect(
      [address, options] { return c10::make_intrusive<c10d::TCPStore>(address, options); });
  auto connected = connect.get_future();
  std::thread worker(std::move(connect));
  if (connected.wait_for(options.timeout + past_timeout) != std::future_status::ready) {
    worker.detach();
    throw RunError(where, "something listens there that does not answer as a run's store",
                   "another program has that port: set MASTER_PORT to a free one; or the process that hosts the store "
                   "is stopped");
  }
  worker.join();
  try {
    return connected.get();
  } catch (const std::exception& error) {
    throw RunError(where, "the run's store cannot be reached: " + first_line(error),
                   "do MASTER_ADDR and MASTER_PORT name the host and port of rank 0?");
  }
}

}  // namespace plumb::exec
