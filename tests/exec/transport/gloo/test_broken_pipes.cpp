#include "exec/transport/gloo/broken_pipes.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "tests/catch.hpp"

using namespace plumb::exec;

namespace {

// errno of a write into a pipe that nobody reads; where SIGPIPE is not blocked, this process ends.
int write_into_broken_pipe() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return -1;
  ::close(ends[0]);
  const int error = ::write(ends[1], "x", 1) == 1 ? 0 : errno;
  ::close(ends[1]);
  return error;
}

bool is_blocked_here() {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return ::sigismember(&mask, SIGPIPE) == 1;
}

bool is_pending_here() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

TEST_CASE("a write to a peer that has gone fails and does not end the process, here and in threads started here") {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  {
    const WithoutBrokenPipes guard;
    CHECK(write_into_broken_pipe() == EPIPE);
    {
      const WithoutBrokenPipes inner;
      CHECK(write_into_broken_pipe() == EPIPE);
    }
    CHECK(is_blocked_here());
  }
  CHECK_FALSE(is_blocked_here());
  CHECK_FALSE(is_pending_here());

  int error = 0;
  std::thread writer;
  {
    const WithoutBrokenPipes guard;
    writer = std::thread([&] { error = write_into_broken_pipe(); });
  }
  writer.join();
  CHECK(error == EPIPE);
  std::signal(SIGPIPE, before);
}
