#include "exec/transport/gloo/broken_pipes.hpp"

#include <pthread.h>

#include <ctime>

namespace plumb::exec {
namespace {

sigset_t broken_pipe() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

WithoutBrokenPipes::WithoutBrokenPipes() {
  const sigset_t blocked = broken_pipe();
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

WithoutBrokenPipes::~WithoutBrokenPipes() {
  if (::sigismember(&before_, SIGPIPE) == 1) return;
  const sigset_t blocked = broken_pipe();
  constexpr timespec at_once{};
  while (::sigtimedwait(&blocked, nullptr, &at_once) == SIGPIPE) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace plumb::exec
