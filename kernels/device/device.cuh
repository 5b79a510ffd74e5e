// What our kernels are written in: by nvcc it is CUDA, by a C++ compiler with PLUMB_EMULATED it runs on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/device/types.hpp"

#ifdef PLUMB_EMULATED
#include "kernels/device/emulated.cuh"
#else
#include "kernels/device/cuda.cuh"
#endif

namespace plumb::kernels::device {

constexpr int warp_size = 32;

// N neighbours that are moved at once: 16 bytes are one LDG.128 or STG.128.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <class T>
constexpr int per_16_bytes = 16 / static_cast<int>(sizeof(T));

template <int N, class T>
__device__ __forceinline__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, class T>
__device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

__device__ __forceinline__ float to_float(float x) { return x; }
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return narrowed<T>(x);
  }
}

// In a tree of a fixed shape, the same in every lane. All lanes take part.
__device__ __forceinline__ float warp_sum(float x) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

// Where a thread stands in mma's fragments: PTX ISA, "Matrix fragments for mma.m16n8k16". Its lane is 4 · group + quad.
struct Lane {
  int warp = static_cast<int>(threadIdx.x) / warp_size;
  int group = static_cast<int>(threadIdx.x) % warp_size / 4;
  int quad = static_cast<int>(threadIdx.x) % warp_size % 4;

  __device__ __forceinline__ Lane() {}
};

// Two narrow numbers as the tensor cores take them: `low` in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t paired(T low, T high) {
  union {
    T halves[2];
    std::uint32_t word;
  } both = {{low, high}};
  return both.word;
}

// `shared` has room for Warps floats; all Warps · 32 threads take part and get the sum.
template <int Warps>
__device__ __forceinline__ float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  sync_block();  // what an earlier sum left there has been read
  if (lane == 0) shared[static_cast<int>(threadIdx.x) / warp_size] = x;
  sync_block();
  x = 0;
  for (int warp = 0; warp < Warps; ++warp) x += shared[warp];
  return x;
}

// Where in `first`, ascending from 0, the last number stands that is not above x: which tensor a chunk of many belongs
// to.
__device__ __forceinline__ int place_of(int x, const int* first, int count) {
  int low = 0;
  for (int high = count; high - low > 1;) {
    const int middle = (low + high) / 2;
    if (first[middle] <= x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Calls f with a value of the element's type.
template <class F>
void with_type(Type type, const F& f) {
  switch (type) {
    case Type::fp32:
      return f(float{});
    case Type::fp16:
      return f(fp16{});
    case Type::bf16:
      return f(bf16{});
  }
}

template <class... Number>
bool multiples_of(std::int64_t divisor, Number... numbers) {
  return ((static_cast<std::int64_t>(numbers) % divisor == 0) && ...);
}
template <int Bytes, class... Element>
__host__ __device__ __forceinline__ bool aligned_to(Element*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % Bytes == 0) && ...);
}

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("kernels: expected ") + what);
}

inline int ceil_div(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

// A block for each row, while the grid is not too large; a kernel goes over its rows in steps of the grid.
inline dim3 blocks_for(std::int64_t rows) { return {static_cast<unsigned>(std::min<std::int64_t>(rows, 1 << 20))}; }

}  // namespace plumb::kernels::device
