// LibTorch's errors in one line.
#include "exec/device/torch_error.hpp"

#include <stdexcept>

#include "tests/catch.hpp"

using namespace plumb::exec;

TEST_CASE("an allocation that was refused is said in words, everything else by its first line") {
  const std::runtime_error refused(
      "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
      "4294967296 bytes. Error code 12 (Cannot allocate memory)\nframe #0: c10::ThrowEnforceNotMet\nframe #1: …");
  CHECK(work_error(refused) == "there is no memory for 4294967296 bytes more");
  CHECK(work_error(std::bad_alloc()) == "there is no more memory");
  CHECK(work_error(std::runtime_error("shapes differ\nframe #0: f")) == "shapes differ");
}
