// A thread takes 16 neighbours, so that a block of 32 to 512 elements lies in 2 to 32 lanes of one warp.
#include "kernels/quantise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

constexpr int threads = 256;
constexpr int each = 16;  // elements of a thread

struct Extent {
  std::int64_t count;
  std::int64_t runs;  // of 16, in whole blocks
  int lanes;          // of a block: 2 to the power of shift
  int shift;
};

template <class T>
__device__ __forceinline__ void load_run(const T* x, std::int64_t begin, std::int64_t count, bool aligned,
                                         float (&out)[each]) {
  constexpr int n = per_16_bytes<T>;
  if (aligned && begin + each <= count) {
    Pack<T, n> packs[each / n];
#pragma unroll
    for (int i = 0; i < each / n; ++i) packs[i] = load<n>(x + begin + i * n);
#pragma unroll
    for (int i = 0; i < each; ++i) out[i] = to_float(packs[i / n].at[i % n]);
  } else {
#pragma unroll
    for (int i = 0; i < each; ++i) out[i] = begin + i < count ? to_float(x[begin + i]) : 0.0F;
  }
}

template <class T, int Bits>
__global__ void __launch_bounds__(threads)
    quantise_kernel(Extent extent, const T* x, bool aligned, std::uint8_t* values, float* scales) {
  constexpr float top = Bits == 8 ? 127.0F : 7.0F;
  // Whole warps stay together for the exchange: those behind the end have zeros.
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * threads; base < extent.runs; base += step) {
    const std::int64_t run = base + threadIdx.x;
    float in[each];
    load_run(x, run * each, extent.count, aligned, in);
    float largest = 0;
    float poison = 0;  // becomes NaN with the first number that is not finite
#pragma unroll
    for (int i = 0; i < each; ++i) {
      largest = fmaxf(largest, fabsf(in[i]));
      poison += in[i] - in[i];
    }
    if (!(poison == 0.0F)) largest = INFINITY;
    for (int mask = extent.lanes / 2; mask > 0; mask /= 2) largest = fmaxf(largest, shuffle_xor(largest, mask));
    if (run >= extent.runs) continue;
    const float inverse = largest > 0.0F && largest < INFINITY ? top / largest : 0.0F;
    if (threadIdx.x % static_cast<unsigned>(extent.lanes) == 0) scales[run >> extent.shift] = largest / top;
    Pack<std::uint8_t, each* Bits / 8> out = {};
#pragma unroll
    for (int i = 0; i < each; ++i) {
      // Clamped, as x · (top / largest) may round to just above top + ½ only in theory; NaN · 0 becomes 0.
      const float scaled = inverse > 0.0F ? fminf(fmaxf(rintf(product(in[i], inverse)), -top), top) : 0.0F;
      const int value = static_cast<int>(scaled);
      if constexpr (Bits == 8) {
        out.at[i] = static_cast<std::uint8_t>(value);
      } else {
        out.at[i / 2] = static_cast<std::uint8_t>(out.at[i / 2] | (value & 15) << (i % 2 * 4));
      }
    }
    store(values + run * (each * Bits / 8), out);
  }
}

template <class T, int Bits>
__global__ void __launch_bounds__(threads)
    reduce_kernel(Extent extent, int pieces, const std::uint8_t* values, const float* scales, bool aligned, T* y) {
  constexpr int bytes = each * Bits / 8;
  constexpr int n = per_16_bytes<T>;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  const std::int64_t blocks = extent.runs >> extent.shift;
  const int shift = extent.shift;
  for (std::int64_t run = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; run < extent.runs;
       run += step) {
    float total[each] = {};
    const std::uint8_t* from = values + run * bytes;
    const float* scale_from = scales + (run >> shift);
#pragma unroll 4
    for (int piece = 0; piece < pieces; ++piece) {
      const Pack<std::uint8_t, bytes> in = load<bytes>(from);
      const float scale = *scale_from;
      from += extent.runs * bytes;
      scale_from += blocks;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        int value = 0;
        if constexpr (Bits == 8) {
          value = static_cast<std::int8_t>(in.at[i]);
        } else {
          value = static_cast<std::int8_t>(in.at[i / 2] << (4 - i % 2 * 4)) >> 4;
        }
        total[i] += scale * static_cast<float>(value);
      }
    }
    if (aligned && (run + 1) * each <= extent.count) {
#pragma unroll
      for (int i = 0; i < each / n; ++i) {
        Pack<T, n> out;
#pragma unroll
        for (int j = 0; j < n; ++j) out.at[j] = from_float<T>(total[i * n + j]);
        store(y + run * each + i * n, out);
      }
    } else {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (run * each + i < extent.count) y[run * each + i] = from_float<T>(total[i]);
      }
    }
  }
}

Extent checked(const QuantiseShape& shape) {
  const bool known =
      shape.block == 32 || shape.block == 64 || shape.block == 128 || shape.block == 256 || shape.block == 512;
  require(known, "blocks of 32, 64, 128, 256 or 512 elements");
  require(shape.bits == 8 || shape.bits == 4, "8 or 4 bits");
  require(shape.count >= 0, "count >= 0");
  return {.count = shape.count,
          .runs = quantised_blocks(shape) * shape.block / each,
          .lanes = static_cast<int>(shape.block / each),
          .shift = std::countr_zero(static_cast<unsigned>(shape.block / each))};
}

dim3 grid_of(const Extent& extent) {
  // Eight blocks of 256 threads fill a multiprocessor.
  return {static_cast<unsigned>(
      std::min<std::int64_t>((extent.runs + threads - 1) / threads, std::int64_t{8} * processors()))};
}

}  // namespace

void quantise(const QuantiseShape& shape, Type type, const void* x, const QuantisedBlocks& to, Stream stream) {
  const Extent extent = checked(shape);
  require(aligned_to<16>(to.values), "values at a multiple of 16 bytes");
  if (shape.count == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    launch(shape.bits == 8 ? quantise_kernel<T, 8> : quantise_kernel<T, 4>, grid_of(extent), threads, 0, stream, extent,
           static_cast<const T*>(x), aligned_to<16>(x), to.values, to.scales);
  });
}

void dequantise_reduce(const QuantiseShape& shape, Type type, const QuantisedPieces& pieces, void* y, Stream stream) {
  const Extent extent = checked(shape);
  require(aligned_to<16>(pieces.values), "values at a multiple of 16 bytes");
  require(pieces.count >= 1, "one piece or more");
  if (shape.count == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    launch(shape.bits == 8 ? reduce_kernel<T, 8> : reduce_kernel<T, 4>, grid_of(extent), threads, 0, stream, extent,
           pieces.count, pieces.values, pieces.scales, aligned_to<16>(y), static_cast<T*>(y));
  });
}

}  // namespace plumb::kernels
