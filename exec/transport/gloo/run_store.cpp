#include "exec/transport/gloo/run_store.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "common/base/error.hpp"
#include "exec/device/torch_error.hpp"
#include "exec/transport/gloo/tcp_store.hpp"

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

const std::string stop_name = "stop";

// Slices of a call are counted, not time: nobody is to blame when the whole machine pauses.
constexpr auto slice_of_silence = 200ms;
constexpr int most_slices = static_cast<int>(RunStore::silence_limit.value / 0.2);

std::string alive_name(int rank) { return fmt::format("alive/{}", rank); }

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

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

// LibTorch's calls have no deadline: they are made on a thread that is left behind if the store does not answer.
struct RunStore::Connection {
  explicit Connection(const c10::intrusive_ptr<c10d::TCPStore>& store)
      : port(store->getPort()),
        line(std::make_shared<Line>()),
        where(fmt::format("{}:{}", store->getHost(), store->getPort())) {
    line->store = store;
    worker = std::thread([shared = line] { serve(*shared); });
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    {
      const std::scoped_lock lock(line->mutex);
      line->closing = true;
    }
    line->changed.notify_all();
    if (line->lost) {
      worker.detach();
    } else {
      worker.join();
    }
  }

  // `call` outlives its caller where the store does not answer: it owns what it needs.
  template <class Call>
  auto operator()(Call call) {
    using Result = std::invoke_result_t<Call, c10d::TCPStore&>;
    const auto task = std::make_shared<std::packaged_task<Result(c10d::TCPStore&)>>(std::move(call));
    std::future<Result> answer = task->get_future();
    {
      const std::scoped_lock lock(line->mutex);
      if (line->lost) throw silent();
      line->calls.push_back([task](c10d::TCPStore& store) { (*task)(store); });
    }
    line->changed.notify_all();
    for (int slice = 0; answer.wait_for(slice_of_silence) != std::future_status::ready; ++slice) {
      const std::scoped_lock lock(line->mutex);
      if (slice >= most_slices) line->lost = true;
      if (line->lost) throw silent();
    }
    try {
      return answer.get();
    } catch (const std::exception& error) {
      throw RunError(where, "the process that hosts the run's store does not answer: " + first_line(error), hint);
    }
  }

  const int port;

 private:
  static constexpr const char* hint =
      "it is rank 0, or what has started the ranks: it has ended or is stopped, or its host is lost; see its output";

  struct Line {
    c10::intrusive_ptr<c10d::TCPStore> store;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void(c10d::TCPStore&)>> calls;
    bool closing = false;
    bool lost = false;
  };

  static void serve(Line& line) {
    std::unique_lock lock(line.mutex);
    while (true) {
      line.changed.wait(lock, [&] { return line.closing || !line.calls.empty(); });
      if (line.calls.empty()) return;
      const std::function<void(c10d::TCPStore&)> call = std::move(line.calls.front());
      line.calls.pop_front();
      lock.unlock();
      call(*line.store);
      lock.lock();
    }
  }

  [[nodiscard]] RunError silent() const {
    return {where,
            fmt::format("the process that hosts the run's store gives no sign of life since {:.0f} s",
                        RunStore::silence_limit.value),
            hint};
  }

  std::shared_ptr<Line> line;
  std::string where;
  std::thread worker;
};

RunStore::RunStore(std::unique_ptr<Connection> connection, int attempt)
    : connection_(std::move(connection)), attempt_(attempt) {}
RunStore::~RunStore() = default;

std::string RunStore::key(const std::string& name) const { return fmt::format("plumb/{}/{}", attempt_, name); }

std::shared_ptr<RunStore> RunStore::host(int port, Reach reach) {
  const auto [socket, actual_port] = listen(port, reach);
  c10d::TCPStoreOptions made = store_options(actual_port, true);
  made.masterListenFd = socket;
  try {
    return std::make_shared<RunStore>(
        std::make_unique<Connection>(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", made)), 0);
  } catch (const std::exception& error) {
    throw RunError(fmt::format("port {}", actual_port), "the run's store cannot start: " + first_line(error));
  }
}

namespace {

// LibTorch tries for minutes to find a host that nobody knows.
void require_known(const std::string& address) {
  addrinfo* found = nullptr;
  const int result = ::getaddrinfo(address.c_str(), nullptr, nullptr, &found);
  if (found != nullptr) ::freeaddrinfo(found);
  if (result != EAI_NONAME) return;
  throw RunError("MASTER_ADDR", "there is no host '" + address + "' that this one knows",
                 "the name or address of rank 0's host");
}

}  // namespace

std::shared_ptr<RunStore> RunStore::join(const std::string& address, int port, Seconds timeout, int attempt) {
  require_known(address);
  return std::make_shared<RunStore>(std::make_unique<Connection>(connect_store(address, port, timeout)), attempt);
}

int RunStore::port() const { return connection_->port; }

void RunStore::say(int rank, const std::string& text) { put(alive_name(rank), text); }

std::string RunStore::said(int rank) { return find(alive_name(rank)).value_or(""); }

void RunStore::put(const std::string& name, const std::string& value) {
  (*connection_)([full = key(name), value](c10d::TCPStore& store) { store.set(full, bytes_of(value)); });
}

std::optional<std::string> RunStore::find(const std::string& name) {
  return (*connection_)([full = key(name)](c10d::TCPStore& store) {
    return store.check({full}) ? std::optional(text_of(store.get(full))) : std::nullopt;
  });
}

// One value, so that nobody sees a reason with another's status: the status is its first character.
void RunStore::stop(const std::string& reason, ExitStatus status) {
  (*connection_)([full = key(stop_name), value = std::to_string(static_cast<int>(status)) + reason](
                     c10d::TCPStore& store) { (void)store.compareSet(full, {}, bytes_of(value)); });
}

std::string RunStore::stop_reason() {
  const std::string value = find(stop_name).value_or("");
  return value.empty() ? "" : value.substr(1);
}

ExitStatus RunStore::stop_status() {
  const std::string value = find(stop_name).value_or("");
  return value.empty() ? ExitStatus::done : static_cast<ExitStatus>(value.front() - '0');
}

}  // namespace plumb::exec
