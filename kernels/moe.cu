// The plan is a counting sort without atomics: warps count their segments, one block adds up the counts in the order of
// experts and segments, and the same warps place their choices. The movers give a token to a block.
#include "kernels/moe.hpp"

#include <algorithm>

#include "kernels/device/device.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

constexpr int threads = 256;
constexpr int warps = threads / warp_size;
constexpr int segment = 1024;  // choices that one warp counts
constexpr int scan_threads = 1024;
constexpr int most_choices = 64;

// Calls use(choice, expert, rank among the same of this step, their number) for the choices of a segment, 32 at a time.
template <class F>
__device__ __forceinline__ void for_segment(const std::int32_t* expert_of, std::int64_t choices, const F& use) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * segment;
  const std::int64_t end = begin + segment < choices ? begin + segment : choices;
  const unsigned below = (1U << threadIdx.x) - 1;
  for (std::int64_t base = begin; base < end; base += warp_size) {
    const std::int64_t at = base + threadIdx.x;
    const int expert = at < end ? expert_of[at] : -1;
    const unsigned same = match_any(expert);
    use(at, expert, ones(same & below), ones(same));
  }
}

__global__ void __launch_bounds__(warp_size)
    count_kernel(const std::int32_t* expert_of, std::int64_t choices, int experts, std::int32_t* counts) {
  auto* const seen = reinterpret_cast<std::int32_t*>(dynamic_shared());
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += warp_size) seen[e] = 0;
  sync_warp();
  for_segment(expert_of, choices, [&](std::int64_t, int expert, int rank, int number) {
    if (expert >= 0 && rank == 0) seen[expert] += number;
    sync_warp();
  });
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += warp_size) {
    counts[static_cast<std::int64_t>(e) * gridDim.x + blockIdx.x] = seen[e];
  }
}

// counts [experts, segments] become the sums of those before each.
__global__ void __launch_bounds__(scan_threads)
    scan_kernel(int experts, int segments, std::int32_t* counts, std::int32_t* offsets) {
  __shared__ std::int32_t sums[scan_threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int length = (experts * segments + scan_threads - 1) / scan_threads;
  const int begin = thread * length < experts * segments ? thread * length : experts * segments;
  const int end = begin + length < experts * segments ? begin + length : experts * segments;
  std::int32_t own = 0;
  for (int i = begin; i < end; ++i) own += counts[i];
  sums[thread] = own;
  for (int reach = 1; reach < scan_threads; reach *= 2) {
    sync_block();
    const std::int32_t before = thread >= reach ? sums[thread - reach] : 0;
    sync_block();
    sums[thread] += before;
  }
  std::int32_t running = sums[thread] - own;
  for (int i = begin; i < end; ++i) {
    const std::int32_t count = counts[i];
    counts[i] = running;
    if (i % segments == 0) offsets[i / segments] = running;
    running += count;
  }
  if (thread == scan_threads - 1) offsets[experts] = sums[thread];
}

__global__ void __launch_bounds__(warp_size)
    place_kernel(const std::int32_t* expert_of, std::int64_t choices, int experts, const std::int32_t* starts,
                 std::int32_t* row_of) {
  auto* const next = reinterpret_cast<std::int32_t*>(dynamic_shared());
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += warp_size) {
    next[e] = starts[static_cast<std::int64_t>(e) * gridDim.x + blockIdx.x];
  }
  sync_warp();
  for_segment(expert_of, choices, [&](std::int64_t at, int expert, int rank, int number) {
    if (at < choices) row_of[at] = expert >= 0 ? next[expert] + rank : -1;
    sync_warp();
    if (expert >= 0 && rank == 0) next[expert] += number;
    sync_warp();
  });
}

struct Extent {
  std::int64_t tokens;
  int hidden;
  int top_k;
};

// The token's rows and weights, once for the block.
template <class F>
__device__ __forceinline__ void gather(const Extent& extent, std::int64_t token, const std::int32_t* row_of,
                                       std::int32_t* rows, const F& also) {
  sync_block();  // the last token's have been used
  if (static_cast<int>(threadIdx.x) < extent.top_k) {
    const std::int64_t choice = token * extent.top_k + threadIdx.x;
    rows[threadIdx.x] = row_of[choice];
    also(choice);
  }
  sync_block();
}

template <class T, int N>
__global__ void __launch_bounds__(threads)
    permute_kernel(Extent extent, const T* x, const std::int32_t* row_of, T* rows) {
  __shared__ std::int32_t to[most_choices];
  for (std::int64_t token = blockIdx.x; token < extent.tokens; token += gridDim.x) {
    gather(extent, token, row_of, to, [](std::int64_t) {});
    for (int column = static_cast<int>(threadIdx.x) * N; column < extent.hidden; column += threads * N) {
      const Pack<T, N> pack = load<N>(x + token * extent.hidden + column);
#pragma unroll 4
      for (int j = 0; j < extent.top_k; ++j) {
        if (to[j] >= 0) store(rows + static_cast<std::int64_t>(to[j]) * extent.hidden + column, pack);
      }
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(threads)
    unpermute_kernel(Extent extent, const T* rows, const std::int32_t* row_of, const float* weight, T* y) {
  __shared__ std::int32_t from[most_choices];
  __shared__ float share[most_choices];
  constexpr int at_once = 4;
  for (std::int64_t token = blockIdx.x; token < extent.tokens; token += gridDim.x) {
    gather(extent, token, row_of, from,
           [&](std::int64_t choice) { share[threadIdx.x] = weight != nullptr ? weight[choice] : 1.0F; });
    for (int column = static_cast<int>(threadIdx.x) * N; column < extent.hidden; column += threads * N) {
      float total[N] = {};
      for (int first = 0; first < extent.top_k; first += at_once) {
        Pack<T, N> in[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          if (first + j >= extent.top_k || from[first + j] < 0) continue;
          in[j] = load<N>(rows + static_cast<std::int64_t>(from[first + j]) * extent.hidden + column);
        }
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          if (first + j >= extent.top_k || from[first + j] < 0) continue;
#pragma unroll
          for (int i = 0; i < N; ++i) total[i] += share[first + j] * to_float(in[j].at[i]);
        }
      }
      Pack<T, N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) out.at[i] = from_float<T>(total[i]);
      store(y + token * extent.hidden + column, out);
    }
  }
}

template <class T>
struct Backward {
  const T* dy;
  const T* rows;
  const std::int32_t* row_of;
  const float* weight;
  T* drows;
  float* dweight;
};

template <class T, int N>
__global__ void __launch_bounds__(threads)
    unpermute_backward_kernel(Extent extent, const __grid_constant__ Backward<T> a) {
  __shared__ std::int32_t row[most_choices];
  __shared__ float share[most_choices];
  __shared__ float shared[warps];
  for (std::int64_t token = blockIdx.x; token < extent.tokens; token += gridDim.x) {
    gather(extent, token, a.row_of, row, [&](std::int64_t choice) { share[threadIdx.x] = a.weight[choice]; });
    for (int j = 0; j < extent.top_k; ++j) {
      float along = 0;
      if (row[j] >= 0) {
        const std::int64_t first = static_cast<std::int64_t>(row[j]) * extent.hidden;
#pragma unroll 2
        for (int column = static_cast<int>(threadIdx.x) * N; column < extent.hidden; column += threads * N) {
          Pack<T, N> dy = load<N>(a.dy + token * extent.hidden + column);
          const Pack<T, N> in = load<N>(a.rows + first + column);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            along += to_float(dy.at[i]) * to_float(in.at[i]);
            dy.at[i] = from_float<T>(share[j] * to_float(dy.at[i]));
          }
          store(a.drows + first + column, dy);
        }
      }
      along = block_sum<warps>(along, shared);
      if (threadIdx.x == 0) a.dweight[token * extent.top_k + j] = along;
    }
  }
}

Extent checked(const MoeShape& shape) {
  require(shape.tokens >= 0 && shape.hidden > 0 && shape.hidden < (1 << 30), "tokens >= 0, 0 < hidden < 2^30");
  require(shape.top_k > 0 && shape.top_k <= most_choices, "1 to 64 choices of a token");
  require(shape.experts > 0 && shape.experts <= 4096, "1 to 4096 experts");
  require(shape.tokens * shape.top_k < (std::int64_t{1} << 31), "fewer than 2^31 rows");
  return {.tokens = shape.tokens, .hidden = static_cast<int>(shape.hidden), .top_k = static_cast<int>(shape.top_k)};
}

template <class T, class... Pointers>
bool is_wide(const MoeShape& shape, Pointers... pointers) {
  return shape.hidden % per_16_bytes<T> == 0 && aligned_to<16>(pointers...);
}

int segments_of(const MoeShape& shape) { return std::max(1, ceil_div(shape.tokens * shape.top_k, segment)); }

}  // namespace

std::int64_t moe_workspace(const MoeShape& shape) { return shape.experts * segments_of(shape); }

void moe_plan(const MoeShape& shape, const MoePlan& a, Stream stream) {
  (void)checked(shape);
  const std::int64_t choices = shape.tokens * shape.top_k;
  const auto experts = static_cast<int>(shape.experts);
  const int segments = segments_of(shape);
  require(shape.experts * segments < (std::int64_t{1} << 31), "experts · segments below 2^31");
  const dim3 grid(static_cast<unsigned>(segments));
  const std::size_t shared = sizeof(std::int32_t) * static_cast<std::size_t>(experts);
  launch(count_kernel, grid, warp_size, shared, stream, a.expert_of, choices, experts, a.workspace);
  launch(scan_kernel, dim3(1), scan_threads, 0, stream, experts, segments, a.workspace, a.offsets);
  launch(place_kernel, grid, warp_size, shared, stream, a.expert_of, choices, experts, a.workspace, a.row_of);
}

void moe_permute(const MoeShape& shape, Type type, const MoePermute<void>& a, Stream stream) {
  const Extent extent = checked(shape);
  if (shape.tokens == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = is_wide<T>(shape, a.x, a.rows);
    launch(wide ? permute_kernel<T, per_16_bytes<T>> : permute_kernel<T, 1>, blocks_for(shape.tokens), threads, 0,
           stream, extent, static_cast<const T*>(a.x), a.row_of, static_cast<T*>(a.rows));
  });
}

void moe_unpermute(const MoeShape& shape, Type type, const MoeUnpermute<void>& a, Stream stream) {
  const Extent extent = checked(shape);
  if (shape.tokens == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = is_wide<T>(shape, a.rows, a.y);
    launch(wide ? unpermute_kernel<T, per_16_bytes<T>> : unpermute_kernel<T, 1>, blocks_for(shape.tokens), threads, 0,
           stream, extent, static_cast<const T*>(a.rows), a.row_of, a.weight, static_cast<T*>(a.y));
  });
}

void moe_unpermute_backward(const MoeShape& shape, Type type, const MoeUnpermuteBackward<void>& a, Stream stream) {
  const Extent extent = checked(shape);
  if (shape.tokens == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const Backward<T> arguments = {.dy = static_cast<const T*>(a.dy),
                                   .rows = static_cast<const T*>(a.rows),
                                   .row_of = a.row_of,
                                   .weight = a.weight,
                                   .drows = static_cast<T*>(a.drows),
                                   .dweight = a.dweight};
    const bool wide = is_wide<T>(shape, a.dy, a.rows, a.drows);
    launch(wide ? unpermute_backward_kernel<T, per_16_bytes<T>> : unpermute_backward_kernel<T, 1>,
           blocks_for(shape.tokens), threads, 0, stream, extent, arguments);
  });
}

}  // namespace plumb::kernels
