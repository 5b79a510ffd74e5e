// plumb-exec: executes plans on real devices, compares them, and calibrates this machine.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "common/base/first_signals.hpp"
#include "exec/commands/commands.hpp"
#include "exec/launch/processes.hpp"

// LibTorch takes half a second to initialise: Ctrl-C ends with words and a status then, too.
[[gnu::section(".preinit_array"), gnu::used]] static plumb::FirstFunction first_function = plumb::take_first_signals;

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
