#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/device/cuda_check.hpp"
#include "tests/kernels/place.hpp"

namespace plumb::test {

void need_device() {
  if (kernels::cuda_device_count() > 0) return;
  std::puts("Skipped: there is no CUDA device here, or no driver for it.");
  std::fflush(stdout);
  std::_Exit(77);
}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  PLUMB_CUDA_CHECK(cudaMalloc(&memory, bytes == 0 ? 1 : bytes));
  PLUMB_CUDA_CHECK(cudaMemset(memory, 0xff, bytes));
  return memory;
}

void release(void* memory) { (void)cudaFree(memory); }

void copy_in(void* to, const void* from, std::size_t bytes) {
  PLUMB_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

void copy_out(void* to, const void* from, std::size_t bytes) {
  PLUMB_CUDA_CHECK(cudaDeviceSynchronize());
  PLUMB_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void each_way(const std::function<void()>& run) {
  run();
  run();
}

}  // namespace plumb::test
