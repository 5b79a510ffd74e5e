// One launch for up to 48 tensors: their addresses are a parameter of the kernel, and a block finds by bisection the
// tensor that its chunk of elements belongs to.
#include "kernels/adamw.hpp"

#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

constexpr int threads = 256;
constexpr int pack = 4;
constexpr int packs_of_thread = 4;
constexpr int chunk = threads * pack * packs_of_thread;  // elements of a block
constexpr int most_tensors = 48;                         // parameters of a kernel: at most 4 KiB

struct Batch {
  AdamWTensor tensors[most_tensors];
  int first_chunk[most_tensors + 1];  // of each tensor; then the number of chunks
  int count;
};
static_assert(sizeof(Batch) < 4000);

__device__ __forceinline__ float step(const AdamWNumbers& n, float gradient, float& m, float& v, float w) {
  const float g = product(gradient, n.gradient_scale);
  m = sum(product(n.beta1, m), product(n.rest1, g));
  v = sum(product(n.beta2, v), product(n.rest2, product(g, g)));
  const float below = sum(sqrtf(v) / n.root, n.epsilon);
  return sum(product(n.keep, w), -product(n.rate, m / below));
}

template <class T, int N>
__device__ __forceinline__ void step_pack(const AdamWNumbers& n, const AdamWTensor& tensor, std::int64_t at) {
  const Pack<float, N> g = load<N>(tensor.gradient + at);
  Pack<float, N> m = load<N>(tensor.first_moment + at);
  Pack<float, N> v = load<N>(tensor.second_moment + at);
  Pack<float, N> w = load<N>(tensor.weight + at);
  Pack<T, N> copy;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    w.at[i] = step(n, g.at[i], m.at[i], v.at[i], w.at[i]);
    copy.at[i] = from_float<T>(w.at[i]);
  }
  store(tensor.first_moment + at, m);
  store(tensor.second_moment + at, v);
  store(tensor.weight + at, w);
  if (tensor.copy != nullptr) store(static_cast<T*>(tensor.copy) + at, copy);
}

template <class T>
__global__ void __launch_bounds__(threads)
    adamw_kernel(const __grid_constant__ Batch batch, const __grid_constant__ AdamWNumbers numbers) {
  const int block = static_cast<int>(blockIdx.x);
  const int low = place_of(block, batch.first_chunk, batch.count);
  const AdamWTensor tensor = batch.tensors[low];
  const std::int64_t begin = static_cast<std::int64_t>(block - batch.first_chunk[low]) * chunk;
  const bool aligned =
      aligned_to<16>(tensor.gradient, tensor.weight, tensor.first_moment, tensor.second_moment, tensor.copy);
  if (aligned && begin + chunk <= tensor.size) {
#pragma unroll
    for (int i = 0; i < packs_of_thread; ++i) {
      step_pack<T, pack>(numbers, tensor, begin + (i * threads + static_cast<int>(threadIdx.x)) * pack);
    }
  } else {
    const std::int64_t end = begin + chunk < tensor.size ? begin + chunk : tensor.size;
    for (std::int64_t at = begin + threadIdx.x; at < end; at += threads) step_pack<T, 1>(numbers, tensor, at);
  }
}

void launch_batch(Type type, const Batch& batch, const AdamWNumbers& numbers, Stream stream) {
  if (batch.count == 0) return;
  with_type(type, [&](auto zero) {
    launch(adamw_kernel<decltype(zero)>, dim3(static_cast<unsigned>(batch.first_chunk[batch.count])), threads, 0,
           stream, batch, numbers);
  });
}

}  // namespace

void adamw(const AdamWSettings& settings, Type copy_type, std::span<const AdamWTensor> tensors, Stream stream) {
  require(settings.step >= 1, "a step of 1 or more");
  const AdamWNumbers numbers = adamw_numbers(settings);
  Batch batch = {};
  for (const AdamWTensor& tensor : tensors) {
    require(tensor.size >= 0 && tensor.size < (std::int64_t{1} << 40), "0 <= size < 2^40");
    if (tensor.size == 0) continue;
    if (batch.count == most_tensors) {
      launch_batch(copy_type, batch, numbers, stream);
      batch.count = 0;
    }
    batch.tensors[batch.count] = tensor;
    batch.first_chunk[batch.count + 1] = batch.first_chunk[batch.count] + ceil_div(tensor.size, chunk);
    ++batch.count;
  }
  launch_batch(copy_type, batch, numbers, stream);
}

}  // namespace plumb::kernels
