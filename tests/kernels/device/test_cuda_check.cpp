// What happens without a device, and with a wrong call: one line that says where, what and why.
#include "kernels/device/cuda_check.hpp"

#include "kernels/swiglu.hpp"
#include "tests/catch.hpp"

using namespace plumb::kernels;

TEST_CASE("A failed call of the CUDA runtime says file, line, call and reason") {
  CHECK_NOTHROW(check_cuda(0, "fine", "file.cu", 1));
  try {
    check_cuda(2, "cudaMalloc(&p, n)", "file.cu", 7);
    FAIL("did not throw");
  } catch (const CudaError& error) {
    CHECK(error.code() == 2);
    CHECK(std::string(error.what()) == "file.cu:7: cudaMalloc(&p, n): cudaErrorMemoryAllocation: out of memory");
  }
}

TEST_CASE("Without a device a kernel's launch is an error, not a crash") {
  if (cuda_device_count() > 0) return;
  const float x = 1;
  float y = 0;
  CHECK_THROWS_AS(
      swiglu_forward({.rows = 1, .columns = 1, .stride = 1}, Type::fp32, {.gate = &x, .up = &x, .y = &y}, {}),
      CudaError);
  CHECK_THROWS_AS(compute_capability(), CudaError);
}
