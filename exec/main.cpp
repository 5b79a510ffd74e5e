// plumb-exec: executes plans on real devices, compares them, and calibrates this machine.
#include <cstdlib>

#include "exec/commands/commands.hpp"
#include "exec/launch/processes.hpp"

int main(int argc, char** argv) {
  plumb::exec::end_with_launcher();
  // LibTorch prints a page of stack for each attempt to connect; its errors reach us as exceptions.
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  return plumb::exec::plumb_exec(argc, argv);
}
