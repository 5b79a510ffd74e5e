// A block of 256 threads goes over rows; a thread keeps its Held packs of a row in registers between the sum of squares
// and the use, so that each element is read once. Held = 0: rows too long for that, read a second time (from L2).
#include "kernels/rms_norm.hpp"

#include <algorithm>

#include "kernels/add_parts.cuh"
#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

template <class T>
struct Forward {
  const T* x;
  const T* residual;
  const T* __restrict__ weight;
  T* h;
  T* y;
  float* inverse_rms;
  std::int64_t rows;
  int columns;
  float epsilon;
};

// The h of one pack, rounded as it is stored, so that the backward pass sees the same numbers.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> summed(const Forward<T>& a, std::int64_t at) {
  Pack<T, N> x = load<N>(a.x + at);
  if (a.residual != nullptr) {
    const Pack<T, N> residual = load<N>(a.residual + at);
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] = from_float<T>(to_float(x.at[i]) + to_float(residual.at[i]));
  }
  return x;
}

template <int N, class T>
__device__ __forceinline__ float squares(const Pack<T, N>& pack) {
  float total = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) total += to_float(pack.at[i]) * to_float(pack.at[i]);
  return total;
}

template <int N, class T>
__device__ __forceinline__ void scale(const Forward<T>& a, std::int64_t first, int column, Pack<T, N> h,
                                      float inverse) {
  const Pack<T, N> weight = load<N>(a.weight + column);
#pragma unroll
  for (int i = 0; i < N; ++i) h.at[i] = from_float<T>(to_float(h.at[i]) * inverse * to_float(weight.at[i]));
  store(a.y + first + column, h);
}

template <class T, int N, int Held>
__global__ void __launch_bounds__(threads, 4) forward_kernel(const __grid_constant__ Forward<T> a) {
  __shared__ float shared[warps];
  const int begin = static_cast<int>(threadIdx.x) * N;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t first = row * a.columns;
    float total = 0;
    Pack<T, N> held[Held > 0 ? Held : 1];
    if constexpr (Held > 0) {
#pragma unroll
      for (int i = 0; i < Held; ++i) {
        if (begin + i * threads * N < a.columns) held[i] = summed<N>(a, first + begin + i * threads * N);
      }
#pragma unroll
      for (int i = 0; i < Held; ++i) {
        const int column = begin + i * threads * N;
        if (column >= a.columns) continue;
        if (a.h != nullptr) store(a.h + first + column, held[i]);
        total += squares(held[i]);
      }
    } else {
      for (int column = begin; column < a.columns; column += threads * N) {
        const Pack<T, N> h = summed<N>(a, first + column);
        if (a.h != nullptr) store(a.h + first + column, h);
        total += squares(h);
      }
    }
    total = block_sum<warps>(total, shared);
    const float inverse = 1.0F / sqrtf(total / static_cast<float>(a.columns) + a.epsilon);
    if (threadIdx.x == 0) a.inverse_rms[row] = inverse;
    if constexpr (Held > 0) {
#pragma unroll
      for (int i = 0; i < Held; ++i) {
        const int column = begin + i * threads * N;
        if (column < a.columns) scale(a, first, column, held[i], inverse);
      }
    } else {
      // Its own columns, which this thread has just written or never writes.
      const T* const h = a.h != nullptr ? a.h : a.x;
      for (int column = begin; column < a.columns; column += threads * N) {
        scale(a, first, column, load<N>(h + first + column), inverse);
      }
    }
  }
}

template <class T>
struct Backward {
  const T* __restrict__ dy;
  const T* __restrict__ h;
  const T* __restrict__ weight;
  const float* __restrict__ inverse_rms;
  const T* dh;
  T* dx;
  float* parts;
  std::int64_t rows;
  int columns;
};

template <int N, class T>
__device__ __forceinline__ float along(const Backward<T>& a, int column, const Pack<T, N>& dy, const Pack<T, N>& h) {
  const Pack<T, N> weight = load<N>(a.weight + column);
  float total = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) total += to_float(dy.at[i]) * to_float(weight.at[i]) * to_float(h.at[i]);
  return total;
}

// Writes dx and adds this row's share to the thread's part of the weight's gradient.
template <int N, class T>
__device__ __forceinline__ void pull_back(const Backward<T>& a, std::int64_t first, int column, const Pack<T, N>& dy,
                                          const Pack<T, N>& h, float inverse, float share, float (&part)[N]) {
  const Pack<T, N> weight = load<N>(a.weight + column);
  Pack<T, N> beside = {};
  if (a.dh != nullptr) beside = load<N>(a.dh + first + column);
  Pack<T, N> dx;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float g = to_float(dy.at[i]);
    const float x = to_float(h.at[i]);
    float value = inverse * (g * to_float(weight.at[i]) - x * share);
    if (a.dh != nullptr) value += to_float(beside.at[i]);
    dx.at[i] = from_float<T>(value);
    part[i] += g * x * inverse;
  }
  store(a.dx + first + column, dx);
}

template <class T, int N, int Held>
__global__ void __launch_bounds__(threads, 2) backward_kernel(const __grid_constant__ Backward<T> a) {
  __shared__ float shared[warps];
  const int begin = static_cast<int>(threadIdx.x) * N;
  float* const part = a.parts + static_cast<std::int64_t>(blockIdx.x) * a.columns;
  float kept[Held > 0 ? Held : 1][N] = {};
  if constexpr (Held == 0) {
    for (int column = begin; column < a.columns; column += threads * N) store(part + column, Pack<float, N>{});
  }
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t first = row * a.columns;
    const float inverse = a.inverse_rms[row];
    float total = 0;
    Pack<T, N> dy[Held > 0 ? Held : 1];
    Pack<T, N> h[Held > 0 ? Held : 1];
    if constexpr (Held > 0) {
#pragma unroll
      for (int i = 0; i < Held; ++i) {
        const int column = begin + i * threads * N;
        if (column >= a.columns) continue;
        dy[i] = load<N>(a.dy + first + column);
        h[i] = load<N>(a.h + first + column);
      }
#pragma unroll
      for (int i = 0; i < Held; ++i) {
        const int column = begin + i * threads * N;
        if (column < a.columns) total += along(a, column, dy[i], h[i]);
      }
    } else {
      for (int column = begin; column < a.columns; column += threads * N) {
        total += along(a, column, load<N>(a.dy + first + column), load<N>(a.h + first + column));
      }
    }
    total = block_sum<warps>(total, shared);
    const float share = inverse * inverse * total / static_cast<float>(a.columns);
    if constexpr (Held > 0) {
#pragma unroll
      for (int i = 0; i < Held; ++i) {
        const int column = begin + i * threads * N;
        if (column < a.columns) pull_back(a, first, column, dy[i], h[i], inverse, share, kept[i]);
      }
    } else {
      for (int column = begin; column < a.columns; column += threads * N) {
        Pack<float, N> so_far = load<N>(part + column);
        pull_back(a, first, column, load<N>(a.dy + first + column), load<N>(a.h + first + column), inverse, share,
                  so_far.at);
        store(part + column, so_far);
      }
    }
  }
  if constexpr (Held > 0) {
#pragma unroll
    for (int i = 0; i < Held; ++i) {
      const int column = begin + i * threads * N;
      if (column >= a.columns) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) part[column + j] = kept[i][j];
    }
  }
}

void check(const RmsNormShape& shape) {
  require(shape.rows >= 0 && shape.columns > 0 && shape.columns < (1 << 30), "rows >= 0, 0 < columns < 2^30");
}

// Calls f<N, Held> with the widest pack that divides rows and pointers, and as many packs as a thread has of a row.
template <class T, class F>
void with_packs(std::int64_t columns, bool aligned, const F& f) {
  constexpr int n = per_16_bytes<T>;
  using std::integral_constant;
  if (!aligned || columns % n != 0) return f(integral_constant<int, 1>{}, integral_constant<int, 0>{});
  if (columns <= threads * n) return f(integral_constant<int, n>{}, integral_constant<int, 1>{});
  if (columns <= 4 * threads * n) return f(integral_constant<int, n>{}, integral_constant<int, 4>{});
  return f(integral_constant<int, n>{}, integral_constant<int, 0>{});
}

}  // namespace

void rms_norm_forward(const RmsNormShape& shape, Type type, const RmsNormForward<void>& a, Stream stream) {
  check(shape);
  require(a.residual == nullptr || a.h != nullptr, "an array for the sum with the residual");
  if (shape.rows == 0) return;
  const bool aligned = aligned_to<16>(a.x, a.residual, a.weight, a.h, a.y);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> arguments = {
        .x = static_cast<const T*>(a.x),
        .residual = static_cast<const T*>(a.residual),
        .weight = static_cast<const T*>(a.weight),
        .h = static_cast<T*>(a.h),
        .y = static_cast<T*>(a.y),
        .inverse_rms = a.inverse_rms,
        .rows = shape.rows,
        .columns = static_cast<int>(shape.columns),
        .epsilon = static_cast<float>(shape.epsilon),
    };
    with_packs<T>(shape.columns, aligned, [&](auto n, auto held) {
      launch(forward_kernel<T, n(), held()>, blocks_for(shape.rows), threads, 0, stream, arguments);
    });
  });
}

std::int64_t rms_norm_part_count(const RmsNormShape& shape) {
  return std::min<std::int64_t>(shape.rows, 2 * processors());  // blocks that fit at once
}

void rms_norm_input_gradient(const RmsNormShape& shape, Type type, const RmsNormInputGradient<void>& a, Stream stream) {
  check(shape);
  if (shape.rows == 0) return;
  const bool aligned = aligned_to<16>(a.dy, a.h, a.weight, a.dh, a.dx) && aligned_to<32>(a.parts);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const Backward<T> arguments = {
        .dy = static_cast<const T*>(a.dy),
        .h = static_cast<const T*>(a.h),
        .weight = static_cast<const T*>(a.weight),
        .inverse_rms = a.inverse_rms,
        .dh = static_cast<const T*>(a.dh),
        .dx = static_cast<T*>(a.dx),
        .parts = a.parts,
        .rows = shape.rows,
        .columns = static_cast<int>(shape.columns),
    };
    const auto blocks = static_cast<unsigned>(rms_norm_part_count(shape));
    with_packs<T>(shape.columns, aligned, [&](auto n, auto held) {
      launch(backward_kernel<T, n(), held()>, dim3(blocks), threads, 0, stream, arguments);
    });
  });
}

void rms_norm_weight_gradient(std::int64_t columns, std::int64_t count, const float* parts, float* gradient,
                              Stream stream) {
  check({.rows = count, .columns = columns});
  add_parts(columns, count, parts, gradient, stream);
}

}  // namespace plumb::kernels
