// What a write to a connection does to this process when the other end has gone.
#pragma once

#include <csignal>

namespace plumb::exec {

// Gloo writes with writev(2), which raises SIGPIPE in the thread that writes when the peer has gone, and that signal
// stays what ends a program whose standard output nobody reads. While this lives it is blocked in the calling thread,
// and for good in the threads that are started meanwhile: there the write says EPIPE. One that has come is taken back.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes();
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;
  ~WithoutBrokenPipes();

 private:
  sigset_t before_ = {};
};

}  // namespace plumb::exec
