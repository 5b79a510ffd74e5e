// Operands of products on the tensor cores, of any type: those of fp32 are split into two numbers of TF32 each.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/device.cuh"

namespace plumb::kernels::device {

// What a lane has of 16 × 16 and of 16 × 8 numbers, by mma.m16n8k16's layout for 16-bit types: a word is two
// neighbours, in fp32 two registers.
template <class T>
using RowOperand = std::conditional_t<sizeof(T) == sizeof(float), float[8], std::uint32_t[4]>;
template <class T>
using ColumnOperand = std::conditional_t<sizeof(T) == sizeof(float), float[4], std::uint32_t[2]>;

// As device.cuh's for 16-bit types. Where rows begin 8 numbers further round the banks than the last, the first and the
// third read without a conflict, the transposed ones with two lanes to a bank.
__device__ __forceinline__ void load_a(float (&a)[8], const float* from, int stride) {
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Pack<float, 2> pair = load<2>(from + (lane.group + i % 2 * 8) * stride + lane.quad * 2 + i / 2 * 8);
    a[2 * i] = pair.at[0];
    a[2 * i + 1] = pair.at[1];
  }
}
__device__ __forceinline__ void load_a_transposed(float (&a)[8], const float* from, int stride) {
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    a[i] = from[(lane.quad * 2 + i / 4 * 8 + i % 2) * stride + lane.group + i / 2 % 2 * 8];
  }
}
__device__ __forceinline__ void load_b(float (&b)[4], const float* from, int stride) {
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Pack<float, 2> pair = load<2>(from + lane.group * stride + lane.quad * 2 + i * 8);
    b[2 * i] = pair.at[0];
    b[2 * i + 1] = pair.at[1];
  }
}
__device__ __forceinline__ void load_b_transposed(float (&b)[4], const float* from, int stride) {
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 4; ++i) b[i] = from[(lane.quad * 2 + i / 2 * 8 + i % 2) * stride + lane.group];
}

// x = high + low, but for the last bit or two of low: the nearest numbers of TF32, which has 10 bits after the point;
// halves go away from zero. Where the nearest is infinite, both are cut off, or finite products would overflow. So are
// infinity and NaN: rounding may carry a NaN's bits through its sign to zero. Of those high keeps infinity and the
// quiet bit, and low is the quiet NaN that the difference is, also where high loses all bits that make x a NaN.
template <int N>
__device__ __forceinline__ void split(const float (&x)[N], std::uint32_t (&high)[N], std::uint32_t (&low)[N]) {
  constexpr float from_here_infinite = 0x1.ffep127F;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const std::uint32_t half = fabsf(x[i]) < from_here_infinite ? 0x1000U : 0U;
    high[i] = (bits_of(x[i]) + half) & 0xffffe000U;
    low[i] = (bits_of(x[i] - float_of(high[i])) + half) & 0xffffe000U;
  }
}

// d += a · b of fp32 by three products of TF32 (Ootomo and Yokota, arXiv 2203.03341): low · low is
// below fp32's rounding. The tensor cores cut off what they add, so no sum longer than this is left to them. Which of a
// lane's numbers are which k is ours to choose: the first of each pair are one step of 8, the second the other.
__device__ __forceinline__ void mma(float (&d)[4], const float (&a)[8], const float (&b)[4], float) {
  std::uint32_t a_high[8];
  std::uint32_t a_low[8];
  std::uint32_t b_high[4];
  std::uint32_t b_low[4];
  split(a, a_high, a_low);
  split(b, b_high, b_low);
  float made[4] = {};
  const auto add = [&](const std::uint32_t(&rows)[8], const std::uint32_t(&columns)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t row[4] = {rows[i], rows[2 + i], rows[4 + i], rows[6 + i]};
      const std::uint32_t column[2] = {columns[i], columns[2 + i]};
      mma_tf32(made, row, column);
    }
  };
  add(a_low, b_high);
  add(a_high, b_low);
  add(a_high, b_high);
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] += made[i];
}

}  // namespace plumb::kernels::device
