// The last pass of a gradient that blocks have left in parts: their sum, always in the same order.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

constexpr int adding_threads = 256;

__global__ void __launch_bounds__(adding_threads)
    add_parts_kernel(std::int64_t size, int count, const float* parts, float* gradient) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * adding_threads + threadIdx.x;
  if (at >= size) return;
  float total = 0;
#pragma unroll 8
  for (int part = 0; part < count; ++part) total += parts[part * size + at];
  gradient[at] += total;
}

// gradient[i] += sum over p of parts[p, i].
void add_parts(std::int64_t size, std::int64_t count, const float* parts, float* gradient, Stream stream) {
  using namespace device;
  launch(add_parts_kernel, dim3(static_cast<unsigned>(ceil_div(size, adding_threads))), adding_threads, 0, stream, size,
         static_cast<int>(count), parts, gradient);
}

}  // namespace
}  // namespace plumb::kernels
