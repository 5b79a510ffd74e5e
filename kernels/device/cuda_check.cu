#include "kernels/device/cuda_check.hpp"

#include <cuda_runtime.h>

namespace plumb::kernels {

void check_cuda(int code, const char* call, const char* file, int line) {
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) return;
  throw CudaError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " + cudaGetErrorName(error) + ": " +
                      cudaGetErrorString(error),
                  code);
}

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();  // or the next call would find it
    return 0;
  }
  return count;
}

int compute_capability() {
  int device = 0;
  PLUMB_CUDA_CHECK(cudaGetDevice(&device));
  int major = 0;
  PLUMB_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  int minor = 0;
  PLUMB_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

}  // namespace plumb::kernels
