// The device of device.cuh on the host: our kernels as C++, on the blocks of emulated.hpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/device/emulated.hpp"
#include "kernels/device/numbers.hpp"
#include "kernels/device/types.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __grid_constant__
#define __restrict__
#define threadIdx (::plumb::kernels::emulated::here().thread)
#define blockIdx (::plumb::kernels::emulated::here().block)
#define gridDim (::plumb::kernels::emulated::here().grid)

namespace plumb::kernels::device {

using dim3 = emulated::Index;

struct bf16 {
  std::uint16_t bits;
};
struct fp16 {
  std::uint16_t bits;
};

inline float to_float(bf16 x) { return from_bf16_bits(x.bits); }
inline float to_float(fp16 x) { return from_fp16_bits(x.bits); }
template <class T>
T narrowed(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return {bf16_bits(x)};
  } else {
    return {fp16_bits(x)};
  }
}

inline void sync_block() { emulated::sync_block(); }
inline void sync_warp() { emulated::sync_warp(); }
template <class T>
T shuffle(T x, int lane) {
  return std::bit_cast<T>(emulated::exchanged({std::bit_cast<std::uint32_t>(x)})[lane][0]);
}
template <class T>
T shuffle_xor(T x, int mask) {
  return shuffle(x, static_cast<int>(threadIdx.x % 32) ^ mask);
}
inline unsigned match_any(int x) {
  const emulated::Lanes& all = emulated::exchanged({static_cast<std::uint32_t>(x)});
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    same |= static_cast<unsigned>(all[lane][0] == static_cast<std::uint32_t>(x)) << lane;
  return same;
}
inline int ones(unsigned bits) { return std::popcount(bits); }

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

inline float product(float a, float b) { return a * b; }
inline float sum(float a, float b) { return a + b; }

inline unsigned char* dynamic_shared() { return emulated::dynamic_shared(); }

// As the tensor core does it, but for the order of its sums: PTX ISA, "Matrix fragments for mma.m16n8k16".
template <class T>
void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], T) {
  const emulated::Lanes& all = emulated::exchanged({a[0], a[1], a[2], a[3], b[0], b[1]});
  const auto half = [](std::uint32_t word, int which) {
    return to_float(T{static_cast<std::uint16_t>(word >> (16 * which))});
  };
  const int lane = static_cast<int>(threadIdx.x % 32);
  double rows[2][16];
  double columns[2][16];
  for (int k = 0; k < 16; ++k) {
    const auto& from_a = all[lane / 4 * 4 + k % 8 / 2];
    for (int i = 0; i < 2; ++i) {
      rows[i][k] = half(from_a[i + 2 * (k / 8)], k % 2);
      columns[i][k] = half(all[(lane % 4 * 2 + i) * 4 + k % 8 / 2][4 + k / 8], k % 2);
    }
  }
  for (int i = 0; i < 4; ++i) {
    double total = d[i];
    for (int k = 0; k < 16; ++k) total += rows[i / 2][k] * columns[i % 2][k];
    d[i] = static_cast<float>(total);
  }
}

// Of PTX ISA, "Matrix fragments for mma.m16n8k8", .tf32: no more than TF32's bits are read, and the sum is cut off, not
// rounded, as the tensor cores do (Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7:e330, 2021).
inline void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  const emulated::Lanes& all = emulated::exchanged({a[0], a[1], a[2], a[3], b[0], b[1]});
  const auto number = [](std::uint32_t word) { return static_cast<double>(float_of(word & 0xffffe000U)); };
  const int lane = static_cast<int>(threadIdx.x % 32);
  double rows[2][8];
  double columns[2][8];
  for (int k = 0; k < 8; ++k) {
    for (int i = 0; i < 2; ++i) {
      rows[i][k] = number(all[lane / 4 * 4 + k % 4][i + 2 * (k / 4)]);
      columns[i][k] = number(all[(lane % 4 * 2 + i) * 4 + k % 4][4 + k / 4]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    double total = d[i];
    for (int k = 0; k < 8; ++k) total += rows[i / 2][k] * columns[i % 2][k];
    d[i] = static_cast<float>(total);
    if (std::abs(static_cast<double>(d[i])) > std::abs(total)) d[i] = std::nextafter(d[i], 0.0F);
  }
}

// A lane reads its own part of the fragment.
template <class T>
std::uint32_t word_of(const T& low, const T& high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}
template <class T>
void load_a(std::uint32_t (&a)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane / 4 + i % 2 * 8) * stride + lane % 4 * 2 + i / 2 * 8;
    a[i] = word_of(at[0], at[1]);
  }
}
template <class T>
void load_a_transposed(std::uint32_t (&a)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane % 4 * 2 + i / 2 * 8) * stride + lane / 4 + i % 2 * 8;
    a[i] = word_of(at[0], at[stride]);
  }
}
template <class T>
void load_b(std::uint32_t (&b)[2], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 2; ++i) {
    const T* const at = from + lane / 4 * stride + lane % 4 * 2 + i * 8;
    b[i] = word_of(at[0], at[1]);
  }
}
template <class T>
void load_b_transposed(std::uint32_t (&b)[2], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 2; ++i) {
    const T* const at = from + (lane % 4 * 2 + i * 8) * stride + lane / 4;
    b[i] = word_of(at[0], at[stride]);
  }
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t shared, Stream,
            const Arguments&... arguments) {
  emulated::run_grid(grid, threads, shared, [&] { kernel(arguments...); });
}

inline int processors() { return 3; }  // few and odd, so that blocks get several rows, and not all as many
inline std::size_t most_shared() { return emulated::most_shared(); }

}  // namespace plumb::kernels::device
