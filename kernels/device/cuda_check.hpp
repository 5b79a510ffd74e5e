// The one way in which calls of the CUDA runtime are checked: PLUMB_CUDA_CHECK(cudaMalloc(…)) throws where it failed.
#pragma once

#include <stdexcept>
#include <string>

namespace plumb::kernels {

// A call of the CUDA runtime failed. what(): "file:line: call: CUDA's name of the error: its sentence".
class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& what, int code) : std::runtime_error(what), code_(code) {}

  [[nodiscard]] int code() const { return code_; }  // a cudaError_t

 private:
  int code_;
};

// Throws CudaError unless `code`, a cudaError_t, is cudaSuccess. Use the macro.
void check_cuda(int code, const char* call, const char* file, int line);

// Devices that this process can use; 0 without a driver.
[[nodiscard]] int cuda_device_count();

// Of the current device, major and minor as one number: 90 for an H100 or H200, 100 for a B200 (CUDA C++ Programming
// Guide, "Compute Capabilities"). Throws CudaError.
[[nodiscard]] int compute_capability();

}  // namespace plumb::kernels

#define PLUMB_CUDA_CHECK(call) ::plumb::kernels::check_cuda(static_cast<int>(call), #call, __FILE__, __LINE__)
