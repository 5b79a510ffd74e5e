// The program `plumb-exec`: executes plans on real devices, compares them, and calibrates this machine.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "common/base/first_signals.hpp"
#include "exec/commands/commands.hpp"
#include "exec/launch/processes.hpp"

namespace {

// A rank that plumb-exec has started ends by the signal itself: its launcher reports it.
bool is_launched(char** environment) {
  constexpr const char* variable = "PLUMB_LAUNCHER=";
  for (; *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, variable, std::strlen(variable)) == 0) return true;
  }
  return false;
}

// LibTorch's constructors take ten times as long as what comes before them.
void take_signals(int argc, char** argv, char** environment) {
  if (!is_launched(environment)) {
    plumb::take_first_signals(argc, argv, environment);
    plumb::set_state_at_signal("no rank had started");
  }
  // `plumb` blocks them while it hands over.
  sigset_t taken;
  ::sigemptyset(&taken);
  ::sigaddset(&taken, SIGINT);
  ::sigaddset(&taken, SIGTERM);
  ::sigprocmask(SIG_UNBLOCK, &taken, nullptr);
}

}  // namespace

[[gnu::section(".preinit_array"), gnu::used]] const plumb::FirstFunction first_function = take_signals;

int main(int argc, char** argv) {
  plumb::exec::end_with_launcher();
  // LibTorch prints a page of stack for each attempt to connect; its errors reach us as exceptions.
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  const int status = plumb::exec::plumb_exec(argc, argv);
  // Left to itself LibTorch takes its table of operators apart: 0.1 s of each rank, a third of what it takes to start.
  std::cout.flush();
  (void)std::fflush(nullptr);
  std::_Exit(status);
}
