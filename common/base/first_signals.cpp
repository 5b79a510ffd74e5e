#include "common/base/first_signals.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>

namespace plumb {
namespace {

// Nothing here may need a constructor, and the handler may call async-signal-safe functions alone.
constexpr int status_of_failed_run = 3;
const char* program_name = "plumb";
std::array<char, 4096> unfinished = {};
std::atomic<bool> has_unfinished = false;
std::atomic<const char*> state = nullptr;
std::atomic<pid_t> owner = 0;  // a forked process must not remove its parent's file

void write_text(const char* text) {
  const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

void leave(int signal) {
  remove_unfinished_file();
  write_text(program_name);
  write_text(signal == SIGINT ? ": interrupted (SIGINT)\n" : ": told to end (SIGTERM)\n");
  if (const char* text = state) {
    write_text("  hint: ");
    write_text(text);
    write_text("\n");
  }
  ::_exit(status_of_failed_run);
}

}  // namespace

void take_first_signals(int argc, char** argv, char** /*environment*/) {
  if (argc > 0 && argv[0] != nullptr) {
    const char* slash = std::strrchr(argv[0], '/');
    program_name = slash == nullptr ? argv[0] : slash + 1;
  }
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before = {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;  // nohup, or a job in the background
    struct sigaction action = {};
    action.sa_handler = leave;
    ::sigaction(signal, &action, nullptr);
  }
}

void remove_unfinished_file() {
  if (has_unfinished && owner == ::getpid()) ::unlink(unfinished.data());
}

void set_state_at_signal(const char* text) { state = text; }

void set_unfinished_file(const char* path) {
  has_unfinished = false;
  if (path == nullptr || std::strlen(path) >= unfinished.size()) return;
  std::strcpy(unfinished.data(), path);
  owner = ::getpid();
  has_unfinished = true;
}

}  // namespace plumb
