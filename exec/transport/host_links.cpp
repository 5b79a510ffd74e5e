#include "exec/transport/host_links.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

using Stamp = Clock::rep;

struct Hello {
  int receiver = -1;
  int queue = -1;
};

Descriptor new_socket() { return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

// In the abstract namespace (unix(7)): no file that a killed run would leave behind.
struct Address {
  sockaddr_un name = {};
  socklen_t length = 0;

  Address(const std::string& run, int rank) {
    const std::string text = fmt::format("plumb/{}/{}", run, rank);
    name.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(text.size(), sizeof name.sun_path - 1);
    std::memcpy(name.sun_path + 1, text.data(), bytes);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  [[nodiscard]] const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&name); }
};

bool is_of_this_user(int socket) {
  ucred other = {};
  socklen_t length = sizeof other;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == ::geteuid();
}

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == EINTR; }

timespec until(Clock::time_point deadline) {
  const auto left =
      std::clamp<std::chrono::nanoseconds>(deadline - Clock::now(), std::chrono::nanoseconds(0), std::chrono::hours(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Bell::Bell() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!descriptor_) throw RunError("", fmt::format("no more open files: {}", std::strerror(errno)), "see `ulimit -n`");
}

void Bell::ring() noexcept {
  const std::uint64_t once = 1;
  (void)!::write(descriptor_.number(), &once, sizeof once);
}

Sent HostLink::send(std::span<const std::byte> message) const {
  Stamp stamp = Clock::now().time_since_epoch().count();
  std::array<iovec, 2> parts{iovec{.iov_base = &stamp, .iov_len = sizeof stamp},
                             iovec{.iov_base = const_cast<std::byte*>(message.data()), .iov_len = message.size()}};
  msghdr header = {};
  header.msg_iov = parts.data();
  header.msg_iovlen = parts.size();
  if (::sendmsg(socket_.number(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::yes;
  return would_wait(errno) ? Sent::full : Sent::closed;
}

void HostLink::await_room() const {
  pollfd waited{.fd = socket_.number(), .events = POLLOUT, .revents = 0};
  (void)::poll(&waited, 1, -1);
}

// Both ways: sends alone leave a poll for room asleep.
void HostLink::close_sends() const { (void)::shutdown(socket_.number(), SHUT_RDWR); }

std::optional<Clock::time_point> HostLink::receive(std::span<std::byte> into) const {
  Stamp stamp = 0;
  std::byte beyond{};  // to notice a message that is too long
  std::array<iovec, 3> parts{iovec{.iov_base = &stamp, .iov_len = sizeof stamp},
                             iovec{.iov_base = into.data(), .iov_len = into.size()},
                             iovec{.iov_base = &beyond, .iov_len = 1}};
  msghdr header = {};
  header.msg_iov = parts.data();
  header.msg_iovlen = parts.size();
  const ssize_t bytes = ::recvmsg(socket_.number(), &header, MSG_DONTWAIT);
  if (bytes < 0 && would_wait(errno)) return std::nullopt;
  if (bytes <= 0) throw RunError("", bytes == 0 ? "connection closed by peer" : std::strerror(errno));
  if (static_cast<std::size_t>(bytes) != sizeof stamp + into.size()) {
    throw RunError("", fmt::format("a message of other than {} bytes", into.size()));
  }
  return Clock::time_point(Clock::duration(stamp));
}

void HostLink::await_message(const Bell& bell, Clock::time_point deadline) const {
  std::array<pollfd, 2> waited{pollfd{.fd = socket_.number(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = bell.descriptor().number(), .events = POLLIN, .revents = 0}};
  const timespec left = until(deadline);
  (void)::ppoll(waited.data(), waited.size(), &left, nullptr);
}

HostLinks::HostLinks(std::string run, int rank) : run_(std::move(run)), rank_(rank), listener_(new_socket()) {
  const Address address(run_, rank_);
  if (!listener_ || ::bind(listener_.number(), address.generic(), address.length) != 0 ||
      ::listen(listener_.number(), SOMAXCONN) != 0) {
    throw RunError(fmt::format("rank {}", rank_), fmt::format("no socket on this host: {}", std::strerror(errno)));
  }
}

HostLink HostLinks::open_from(int sender, int queue) const {
  Descriptor socket = new_socket();
  const Address address(run_, sender);
  const Hello hello{.receiver = rank_, .queue = queue};
  if (!socket || ::connect(socket.number(), address.generic(), address.length) != 0 ||
      !is_of_this_user(socket.number()) || ::send(socket.number(), &hello, sizeof hello, MSG_NOSIGNAL) < 0) {
    throw RunError(fmt::format("rank {}", rank_), fmt::format("lost rank {} ({})", sender, std::strerror(errno)));
  }
  return HostLink(std::move(socket));
}

std::optional<HostLink> HostLinks::opened_by(int receiver, int queue) {
  const std::scoped_lock lock(mutex_);
  while (true) {
    pollfd pending{.fd = listener_.number(), .events = POLLIN, .revents = 0};
    if (::poll(&pending, 1, 0) <= 0) break;
    Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) break;
    if (is_of_this_user(socket.number())) opened_.push_back({.socket = std::move(socket)});
  }
  for (Opened& opened : opened_) {
    Hello hello;
    if (opened.receiver >= 0 ||
        ::recv(opened.socket.number(), &hello, sizeof hello, MSG_DONTWAIT) != static_cast<ssize_t>(sizeof hello)) {
      continue;
    }
    opened.receiver = hello.receiver;
    opened.queue = hello.queue;
  }
  const auto found = std::find_if(opened_.begin(), opened_.end(), [&](const Opened& opened) {
    return opened.receiver == receiver && opened.queue == queue;
  });
  if (found == opened_.end()) return std::nullopt;
  HostLink link(std::move(found->socket));
  opened_.erase(found);
  return link;
}

}  // namespace plumb::exec
