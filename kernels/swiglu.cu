// A thread takes one pack of columns of several rows, all loaded before the first is used.
#include "kernels/swiglu.hpp"

#include <algorithm>

#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

constexpr int threads = 256;
constexpr int rows_at_once = 2;

struct Extent {
  std::int64_t rows;
  std::int64_t stride;
  int columns;
};

// exp(−g) overflows to infinity for g < −88: then s is 0, as it is within fp32.
__device__ __forceinline__ float sigmoid(float g) { return 1.0F / (1.0F + expf(-g)); }

template <class T, int N>
__global__ void __launch_bounds__(threads) forward_kernel(Extent extent, const T* gate, const T* up, T* y) {
  const int column = static_cast<int>(blockIdx.x * threads + threadIdx.x) * N;
  if (column >= extent.columns) return;
  for (std::int64_t first = blockIdx.y * rows_at_once; first < extent.rows; first += gridDim.y * rows_at_once) {
    Pack<T, N> g[rows_at_once];
    Pack<T, N> u[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      if (first + i >= extent.rows) continue;
      g[i] = load<N>(gate + (first + i) * extent.stride + column);
      u[i] = load<N>(up + (first + i) * extent.stride + column);
    }
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      if (first + i >= extent.rows) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float value = to_float(g[i].at[j]);
        g[i].at[j] = from_float<T>(value * sigmoid(value) * to_float(u[i].at[j]));
      }
      store(y + (first + i) * extent.columns + column, g[i]);
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(threads)
    backward_kernel(Extent extent, const T* dy, const T* gate, const T* up, T* dgate, T* dup) {
  const int column = static_cast<int>(blockIdx.x * threads + threadIdx.x) * N;
  if (column >= extent.columns) return;
  for (std::int64_t first = blockIdx.y * rows_at_once; first < extent.rows; first += gridDim.y * rows_at_once) {
    Pack<T, N> d[rows_at_once];
    Pack<T, N> g[rows_at_once];
    Pack<T, N> u[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      if (first + i >= extent.rows) continue;
      d[i] = load<N>(dy + (first + i) * extent.columns + column);
      g[i] = load<N>(gate + (first + i) * extent.stride + column);
      u[i] = load<N>(up + (first + i) * extent.stride + column);
    }
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      if (first + i >= extent.rows) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float out = to_float(d[i].at[j]);
        const float value = to_float(g[i].at[j]);
        const float s = sigmoid(value);
        g[i].at[j] = from_float<T>(out * to_float(u[i].at[j]) * s * (1.0F + value * (1.0F - s)));
        u[i].at[j] = from_float<T>(out * value * s);
      }
      store(dgate + (first + i) * extent.stride + column, g[i]);
      store(dup + (first + i) * extent.stride + column, u[i]);
    }
  }
}

Extent checked(const SwigluShape& shape) {
  require(shape.rows >= 0 && shape.columns > 0 && shape.columns < (1 << 30), "rows >= 0, 0 < columns < 2^30");
  require(shape.stride >= shape.columns, "a stride of at least the columns");
  return {.rows = shape.rows, .stride = shape.stride, .columns = static_cast<int>(shape.columns)};
}

dim3 grid_of(const SwigluShape& shape, int pack) {
  const std::int64_t rows = std::min<std::int64_t>(ceil_div(shape.rows, rows_at_once), 65535);
  return {static_cast<unsigned>(ceil_div(shape.columns, threads * pack)), static_cast<unsigned>(rows)};
}

}  // namespace

void swiglu_forward(const SwigluShape& shape, Type type, const SwigluForward<void>& a, Stream stream) {
  const Extent extent = checked(shape);
  if (shape.rows == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = per_16_bytes<T>;
    const bool wide = multiples_of(n, shape.columns, shape.stride) && aligned_to<16>(a.gate, a.up, a.y);
    launch(wide ? forward_kernel<T, n> : forward_kernel<T, 1>, grid_of(shape, wide ? n : 1), threads, 0, stream, extent,
           static_cast<const T*>(a.gate), static_cast<const T*>(a.up), static_cast<T*>(a.y));
  });
}

void swiglu_backward(const SwigluShape& shape, Type type, const SwigluBackward<void>& a, Stream stream) {
  const Extent extent = checked(shape);
  if (shape.rows == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = per_16_bytes<T>;
    const bool wide =
        multiples_of(n, shape.columns, shape.stride) && aligned_to<16>(a.dy, a.gate, a.up, a.dgate, a.dup);
    launch(wide ? backward_kernel<T, n> : backward_kernel<T, 1>, grid_of(shape, wide ? n : 1), threads, 0, stream,
           extent, static_cast<const T*>(a.dy), static_cast<const T*>(a.gate), static_cast<const T*>(a.up),
           static_cast<T*>(a.dgate), static_cast<T*>(a.dup));
  });
}

}  // namespace plumb::kernels
