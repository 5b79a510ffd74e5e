// A block has one token, whose row of the tables its threads read again and again from L1. A thread takes one pack of
// left and one of right partners; interleaved, both lie in one run of twice the length.
#include "kernels/rotary.hpp"

#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

constexpr int threads = 128;

template <class T>
struct Turn {
  const T* x;
  const float* __restrict__ cosine;
  const float* __restrict__ sine;
  T* y;
  std::int64_t tokens;
  std::int64_t x_stride;
  std::int64_t y_stride;
  int time;
  int heads;
  int size;
  int half;
  float sign;  // −1: backwards
};

template <int N, bool Interleaved, class T>
__device__ __forceinline__ void turn_pack(const Turn<T>& a, const T* x, T* y, const float* cosine, const float* sine,
                                          int i) {
  const Pack<T, N> first = load<N>(x + (Interleaved ? 2 * i : i));
  const Pack<T, N> second = load<N>(x + (Interleaved ? 2 * i + N : i + a.half));
  Pack<T, N> low;
  Pack<T, N> high;
  if constexpr (Interleaved) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      // With N = 1 a pair is (first, second); else neighbours of the run of 2N.
      const int left = 2 * j;
      const int right = 2 * j + 1;
      const float l = to_float(left < N ? first.at[left % N] : second.at[left % N]);
      const float r = to_float(right < N ? first.at[right % N] : second.at[right % N]);
      const float c = cosine[i + j];
      const float s = a.sign * sine[i + j];
      (left < N ? low : high).at[left % N] = from_float<T>(l * c - r * s);
      (right < N ? low : high).at[right % N] = from_float<T>(r * c + l * s);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float l = to_float(first.at[j]);
      const float r = to_float(second.at[j]);
      const float c = cosine[i + j];
      const float s = a.sign * sine[i + j];
      low.at[j] = from_float<T>(l * c - r * s);
      high.at[j] = from_float<T>(r * c + l * s);
    }
  }
  store(y + (Interleaved ? 2 * i : i), low);
  store(y + (Interleaved ? 2 * i + N : i + a.half), high);
}

template <class T, int N, bool Interleaved>
__global__ void __launch_bounds__(threads) rotary_kernel(const __grid_constant__ Turn<T> a) {
  const int turned = a.half / N;  // packs of a head that turn, in pairs
  const int kept = (a.size - 2 * a.half) / N;
  const int work = a.heads * (turned + kept);
  for (std::int64_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
    // Fewer than 2^31 tokens: a 64-bit remainder would cost as much as the rest.
    const auto row = static_cast<unsigned>(token) % static_cast<unsigned>(a.time);
    const float* const cosine = a.cosine + static_cast<std::int64_t>(row) * a.half;
    const float* const sine = a.sine + static_cast<std::int64_t>(row) * a.half;
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x); item < work; item += threads) {
      const int head = item / (turned + kept);
      const int pack = item - head * (turned + kept);
      const T* const x = a.x + token * a.x_stride + head * a.size;
      T* const y = a.y + token * a.y_stride + head * a.size;
      if (pack < turned) {
        turn_pack<N, Interleaved>(a, x, y, cosine, sine, pack * N);
      } else {
        const int at = 2 * a.half + (pack - turned) * N;
        store(y + at, load<N>(x + at));
      }
    }
  }
}

}  // namespace

void rotary(const RotaryShape& shape, Type type, const Rotary<void>& a, Stream stream) {
  require(shape.tokens >= 0 && shape.tokens < (std::int64_t{1} << 31), "0 <= tokens < 2^31");
  require(shape.time > 0 && shape.time < (1 << 30), "0 < time < 2^30");
  require(shape.heads > 0 && shape.half > 0 && 2 * shape.half <= shape.size, "heads > 0, 0 < 2 half <= size");
  const std::int64_t row = shape.heads * shape.size;
  require(row < (1 << 30) && shape.x_stride >= row && shape.y_stride >= row, "strides of at least heads · size < 2^30");
  if (shape.tokens == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = per_16_bytes<T>;
    const Turn<T> turn = {
        .x = static_cast<const T*>(a.x),
        .cosine = a.cosine,
        .sine = a.sine,
        .y = static_cast<T*>(a.y),
        .tokens = shape.tokens,
        .x_stride = shape.x_stride,
        .y_stride = shape.y_stride,
        .time = static_cast<int>(shape.time),
        .heads = static_cast<int>(shape.heads),
        .size = static_cast<int>(shape.size),
        .half = static_cast<int>(shape.half),
        .sign = a.backwards ? -1.0F : 1.0F,
    };
    const bool wide =
        multiples_of(n, shape.size, shape.half, shape.x_stride, shape.y_stride) && aligned_to<16>(a.x, a.y);
    const auto narrow = shape.interleaved ? rotary_kernel<T, 1, true> : rotary_kernel<T, 1, false>;
    const auto fast = shape.interleaved ? rotary_kernel<T, n, true> : rotary_kernel<T, n, false>;
    launch(wide ? fast : narrow, blocks_for(shape.tokens), threads, 0, stream, turn);
  });
}

}  // namespace plumb::kernels
