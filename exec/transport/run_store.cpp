#include "exec/transport/run_store.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "common/base/error.hpp"
#include "exec/transport/torch_error.hpp"

namespace plumb::exec {
namespace {

const std::string stop_name = "stop";

std::string alive_name(int rank) { return fmt::format("alive/{}", rank); }

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

c10d::TCPStoreOptions options(int port, bool server) {
  c10d::TCPStoreOptions made;
  made.port = static_cast<std::uint16_t>(port);
  made.isServer = server;
  made.waitWorkers = false;
  made.useLibUV = false;  // Debian's LibTorch is built without it
  return made;
}

struct Listening {
  int socket = -1;
  int port = 0;
};

// Our own socket, of IPv4 alone: LibTorch's listens for IPv6 as well and looks up the name of every address that
// connects, which takes 5 s where a resolver does not answer for IPv4 addresses that are mapped to IPv6.
Listening listen(int port, RunStore::Reach reach) {
  const auto failed = [port](int error) {
    return RunError(fmt::format("port {}", port),
                    fmt::format("the run's store cannot listen there: {}", std::strerror(error)),
                    "another run may use the port: set MASTER_PORT to a free one");
  };
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) throw failed(errno);
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(reach == RunStore::Reach::this_host ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket, generic, length) != 0 || ::listen(socket, SOMAXCONN) != 0 ||
      ::getsockname(socket, generic, &length) != 0) {
    const int error = errno;
    ::close(socket);
    throw failed(error);
  }
  return {.socket = socket, .port = ntohs(address.sin_port)};
}

}  // namespace

struct RunStore::Connection {
  c10::intrusive_ptr<c10d::TCPStore> store;

  template <class Call>
  auto operator()(Call call) {
    try {
      return call(*store);
    } catch (const std::exception& error) {
      throw RunError(fmt::format("{}:{}", store->getHost(), store->getPort()),
                     "the process that hosts the run's store does not answer: " + first_line(error));
    }
  }
};

RunStore::RunStore(std::unique_ptr<Connection> connection, int attempt)
    : connection_(std::move(connection)), attempt_(attempt) {}
RunStore::~RunStore() = default;

std::string RunStore::key(const std::string& name) const { return fmt::format("plumb/{}/{}", attempt_, name); }

std::shared_ptr<RunStore> RunStore::host(int port, Reach reach) {
  const auto [socket, actual_port] = listen(port, reach);
  c10d::TCPStoreOptions made = options(actual_port, true);
  made.masterListenFd = socket;
  try {
    return std::make_shared<RunStore>(
        std::make_unique<Connection>(Connection{c10::make_intrusive<c10d::TCPStore>("127.0.0.1", made)}), 0);
  } catch (const std::exception& error) {
    throw RunError(fmt::format("port {}", actual_port), "the run's store cannot start: " + first_line(error));
  }
}

std::shared_ptr<RunStore> RunStore::join(const std::string& address, int port, Seconds timeout, int attempt) {
  c10d::TCPStoreOptions made = options(port, false);
  made.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout.value * 1e3));
  try {
    return std::make_shared<RunStore>(
        std::make_unique<Connection>(Connection{c10::make_intrusive<c10d::TCPStore>(address, made)}), attempt);
  } catch (const std::exception& error) {
    throw RunError(fmt::format("{}:{}", address, port), "the run's store cannot be reached: " + first_line(error),
                   "do MASTER_ADDR and MASTER_PORT name the host and port of rank 0?");
  }
}

int RunStore::port() const { return connection_->store->getPort(); }

void RunStore::say(int rank, const std::string& text) { put(alive_name(rank), text); }

std::string RunStore::said(int rank) { return find(alive_name(rank)).value_or(""); }

void RunStore::put(const std::string& name, const std::string& value) {
  (*connection_)([&](c10d::TCPStore& store) { store.set(key(name), bytes_of(value)); });
}

std::optional<std::string> RunStore::find(const std::string& name) {
  return (*connection_)([&](c10d::TCPStore& store) {
    const std::string full = key(name);
    return store.check({full}) ? std::optional(text_of(store.get(full))) : std::nullopt;
  });
}

void RunStore::stop(const std::string& reason) {
  (*connection_)([&](c10d::TCPStore& store) { (void)store.compareSet(key(stop_name), {}, bytes_of(reason)); });
}

std::string RunStore::stop_reason() { return find(stop_name).value_or(""); }

}  // namespace plumb::exec
