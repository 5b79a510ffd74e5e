// The device of device.cuh as nvcc sees it: thin names for CUDA's own.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/device/cuda_check.hpp"
#include "kernels/device/types.hpp"

namespace plumb::kernels::device {

using bf16 = __nv_bfloat16;
using fp16 = __half;

__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(fp16 x) { return __half2float(x); }
template <class T>
__device__ __forceinline__ T narrowed(float x);
template <>
__device__ __forceinline__ bf16 narrowed<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ fp16 narrowed<fp16>(float x) {
  return __float2half_rn(x);
}

__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
template <class T>
__device__ __forceinline__ T shuffle(T x, int lane) {
  return __shfl_sync(0xffffffffU, x, lane);
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffU, x, mask);
}
// The lanes of the warp whose x is the same.
__device__ __forceinline__ unsigned match_any(int x) { return __match_any_sync(0xffffffffU, x); }
__device__ __forceinline__ int ones(unsigned bits) { return __popc(bits); }

__device__ __forceinline__ std::uint32_t bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float float_of(std::uint32_t bits) { return __uint_as_float(bits); }

// Not to be fused into one multiply-add: the same bits as on any machine.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float sum(float a, float b) { return __fadd_rn(a, b); }

__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(32) unsigned char plumb_dynamic_shared[];
  return plumb_dynamic_shared;
}

// d = a · b + d of 16×8×16 by one warp; PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], fp16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d = a · b + d of 16×8×8 by one warp; PTX ISA, "Matrix fragments for mma.m16n8k8", .tf32.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Fragments of mma from row-major arrays in shared memory whose rows begin `stride` elements apart, at multiples of 16
// bytes: a of [16][16]; b of [8 columns][16], or of [16][8 columns].
template <class T>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from + lane % 16 * stride + lane / 16 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(at)
               : "memory");
}
// a of [16 columns][16 rows].
template <class T>
__device__ __forceinline__ void load_a_transposed(std::uint32_t (&a)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto at = static_cast<std::uint32_t>(
      __cvta_generic_to_shared(from + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(at)
               : "memory");
}
template <class T>
__device__ __forceinline__ void load_b(std::uint32_t (&b)[2], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 16;
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from + lane % 8 * stride + lane / 8 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(at)
               : "memory");
}
template <class T>
__device__ __forceinline__ void load_b_transposed(std::uint32_t (&b)[2], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 16;
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from + lane * stride));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(at)
               : "memory");
}

// Queues the kernel; throws CudaError if that fails.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t shared, Stream stream,
            const Arguments&... arguments) {
  if (shared > 48 * 1024) {
    PLUMB_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  }
  kernel<<<grid, threads, shared, static_cast<cudaStream_t>(stream.handle)>>>(arguments...);
  PLUMB_CUDA_CHECK(cudaGetLastError());
}

// Multiprocessors of the current device.
inline int processors() {
  int device = 0;
  int count = 0;
  PLUMB_CUDA_CHECK(cudaGetDevice(&device));
  PLUMB_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

// Bytes of shared memory that a block of the current device can have; each device is asked once.
inline std::size_t most_shared() {
  constexpr int remembered = 64;
  static std::atomic<int> of_device[remembered] = {};
  int device = 0;
  PLUMB_CUDA_CHECK(cudaGetDevice(&device));
  int bytes = device < remembered ? of_device[device].load(std::memory_order_relaxed) : 0;
  if (bytes == 0) {
    PLUMB_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    if (device < remembered) of_device[device].store(bytes, std::memory_order_relaxed);
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace plumb::kernels::device
