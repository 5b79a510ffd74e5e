// The passes of LoRA in fp32, and for shapes that the tensor cores' loads do not fit: only lora.cu includes it.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / device::warp_size;
constexpr int most_rank = 64;
constexpr int ranks_at_once = 8;

template <class T>
struct Project {
  const T* x;
  const T* factor;
  T* z;
  std::int64_t tokens;
  std::int64_t x_stride;
  std::int64_t z_stride;
  int columns;
  int rank;
  float scale;
};

template <class T>
struct Add {
  const T* z;
  const T* factor;
  T* x;
  std::int64_t tokens;
  std::int64_t x_stride;
  std::int64_t z_stride;
  int columns;
  int rank;
};

template <class T>
struct Gradient {
  const T* z;
  const T* x;
  float* parts;  // [parts of tokens, rank, columns]
  std::int64_t tokens;
  std::int64_t tokens_of_part;
  std::int64_t x_stride;
  std::int64_t z_stride;
  int columns;
  int rank;
};

// A warp has a row, and its lanes the columns in turn.
template <class T>
__global__ void __launch_bounds__(threads) plain_project_kernel(const __grid_constant__ Project<T> a) {
  using namespace device;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (row >= a.tokens) return;  // the whole warp
  for (int first = 0; first < a.rank; first += ranks_at_once) {
    float total[ranks_at_once] = {};
    for (int column = lane; column < a.columns; column += warp_size) {
      const float x = to_float(a.x[row * a.x_stride + column]);
#pragma unroll
      for (int r = 0; r < ranks_at_once; ++r) {
        if (first + r < a.rank) {
          total[r] += x * to_float(a.factor[static_cast<std::int64_t>(first + r) * a.columns + column]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < ranks_at_once; ++r) {
      total[r] = warp_sum(total[r]);
      if (lane == 0 && first + r < a.rank) a.z[row * a.z_stride + first + r] = from_float<T>(a.scale * total[r]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(threads) plain_add_kernel(const __grid_constant__ Add<T> a) {
  using namespace device;
  const int column = static_cast<int>(blockIdx.x * threads + threadIdx.x);
  if (column >= a.columns) return;
  for (std::int64_t row = blockIdx.y; row < a.tokens; row += gridDim.y) {
    float total = 0;
#pragma unroll 4
    for (int r = 0; r < a.rank; ++r) {
      total +=
          to_float(a.z[row * a.z_stride + r]) * to_float(a.factor[static_cast<std::int64_t>(r) * a.columns + column]);
    }
    T& x = a.x[row * a.x_stride + column];
    x = from_float<T>(to_float(x) + total);
  }
}

template <class T>
__global__ void __launch_bounds__(threads) plain_gradient_kernel(const __grid_constant__ Gradient<T> a) {
  using namespace device;
  const int column = static_cast<int>(blockIdx.x * threads + threadIdx.x);
  if (column >= a.columns) return;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * a.tokens_of_part;
  const std::int64_t end = begin + a.tokens_of_part < a.tokens ? begin + a.tokens_of_part : a.tokens;
  float* const part = a.parts + static_cast<std::int64_t>(blockIdx.y) * a.rank * a.columns + column;
  for (int first = 0; first < a.rank; first += ranks_at_once) {
    float total[ranks_at_once] = {};
    for (std::int64_t row = begin; row < end; ++row) {
      const float x = to_float(a.x[row * a.x_stride + column]);
#pragma unroll
      for (int r = 0; r < ranks_at_once; ++r) {
        if (first + r < a.rank) total[r] += x * to_float(a.z[row * a.z_stride + first + r]);
      }
    }
#pragma unroll
    for (int r = 0; r < ranks_at_once; ++r) {
      if (first + r < a.rank) part[static_cast<std::int64_t>(first + r) * a.columns] = total[r];
    }
  }
}

}  // namespace
}  // namespace plumb::kernels
