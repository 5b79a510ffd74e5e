#include "exec/launch/arrival.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "common/base/error.hpp"
#include "exec/device/clock.hpp"

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

constexpr auto look_for_arrivals_every = 20ms;

Clock::time_point deadline_after(Seconds timeout) {
  return Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(timeout.value * 1e3));
}

// Returns whether a connection is made there within a second.
bool listens(const addrinfo& at) {
  const int socket = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  bool connected = ::connect(socket, at.ai_addr, at.ai_addrlen) == 0;
  if (!connected && errno == EINPROGRESS) {
    pollfd waiting{.fd = socket, .events = POLLOUT, .revents = 0};
    int error = 0;
    socklen_t size = sizeof error;
    connected =
        ::poll(&waiting, 1, 1000) == 1 && ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  ::close(socket);
  return connected;
}

bool listens(const std::string& address, int port, bool& known) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  known = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &all) == 0;
  bool found = false;
  for (const addrinfo* at = all; at != nullptr && !found; at = at->ai_next) found = listens(*at);
  if (all != nullptr) ::freeaddrinfo(all);
  return found;
}

std::string key_of(int rank) { return fmt::format("here/{}", rank); }

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (end > i) text += fmt::format("{}{}", end == i + 1 ? ", " : "-", ranks[end]);
    i = end + 1;
  }
  return text;
}

void wait_for_listener(const std::string& address, int port, Seconds timeout) {
  const Clock::time_point deadline = deadline_after(timeout);
  bool known = true;
  while (!listens(address, port, known)) {
    if (!known) return;
    if (Clock::now() > deadline) {
      throw RunError(fmt::format("{}:{}", address, port),
                     fmt::format("rank 0 did not join within {:g} s: nobody listens there", timeout.value),
                     "does it run? do MASTER_ADDR and MASTER_PORT name its host and port?");
    }
    std::this_thread::sleep_for(look_for_arrivals_every);
  }
}

void require_same_start(const std::string& mine, const Membership& member, const Rendezvous& rendezvous,
                        const std::function<void()>& poll, Seconds timeout) {
  rendezvous.put(key_of(member.rank), mine);
  const Clock::time_point deadline = deadline_after(timeout);
  std::vector<int> missing(static_cast<std::size_t>(member.size));
  for (int rank = 0; rank < member.size; ++rank) missing[static_cast<std::size_t>(rank)] = rank;
  std::vector<std::string> texts(missing.size());
  const auto all_are_there = [&] {
    std::erase_if(missing, [&](int rank) {
      const std::optional<std::string> text = rendezvous.find(key_of(rank));
      if (text) texts[static_cast<std::size_t>(rank)] = *text;
      return text.has_value();
    });
    return missing.empty();
  };
  while (!all_are_there()) {
    try {
      poll();
    } catch (const Error&) {
      if (all_are_there()) break;  // another rank has seen the difference first, and ended
      throw;
    }
    if (Clock::now() > deadline) {
      throw RunError(
          "start", fmt::format("{} of {} did not join within {:g} s", ranks_text(missing), member.size, timeout.value),
          "do all of them run? see their output; --start-deadline SECONDS gives them longer");
    }
    std::this_thread::sleep_for(look_for_arrivals_every);
  }
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    throw InputError("start", fmt::format("rank {} was started with {}, rank 0 with {}", rank, texts[rank], texts[0]),
                     "start all ranks with the same options");
  }
}

}  // namespace plumb::exec
