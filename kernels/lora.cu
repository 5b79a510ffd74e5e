// Fragments are loaded from global memory, 16 bytes a lane, without a stop in shared memory: the tensor core adds up
// over k in any order, so which k a lane's numbers stand for is ours to choose, the same for both factors; likewise
// which columns. g and q are the group and the quad of a Lane.
#include "kernels/lora.hpp"

#include <algorithm>

#include "kernels/add_parts.cuh"
#include "kernels/device/device.cuh"
#include "kernels/lora_backward.cuh"
#include "kernels/lora_plain.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

using Words = Pack<std::uint32_t, 4>;  // 8 narrow numbers

template <class T>
__device__ __forceinline__ Words words_or_zero(const T* from, bool there) {
  return there ? load<4>(reinterpret_cast<const std::uint32_t*>(from)) : Words{};
}

constexpr int project_rows = 32;

// 32 rows a block; its warps take every eighth run of 32 columns, and their sums are added up in shared memory. In a
// run, a lane's 8 columns are k = 2q, 2q+1, 2q+8, 2q+9 of two steps.
template <class T, int RankTiles>
__global__ void __launch_bounds__(threads) project_kernel(const __grid_constant__ Project<T> a) {
  const auto [warp, group, quad] = Lane();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * project_rows;
  float total[2][RankTiles][4] = {};
#pragma unroll 2
  for (int column = warp * 32 + quad * 8; column - quad * 8 < a.columns; column += warps * 32) {
    Words x[4];
    Words f[RankTiles];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = first + group + 8 * i;
      x[i] = words_or_zero(a.x + row * a.x_stride + column, row < a.tokens && column < a.columns);
    }
#pragma unroll
    for (int j = 0; j < RankTiles; ++j) {
      const int r = j * 8 + group;
      f[j] =
          words_or_zero(a.factor + static_cast<std::int64_t>(r) * a.columns + column, r < a.rank && column < a.columns);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int step = 0; step < 4; step += 2) {
        const std::uint32_t rows[4] = {x[2 * half].at[step], x[2 * half + 1].at[step], x[2 * half].at[step + 1],
                                       x[2 * half + 1].at[step + 1]};
#pragma unroll
        for (int j = 0; j < RankTiles; ++j) {
          const std::uint32_t columns[2] = {f[j].at[step], f[j].at[step + 1]};
          mma(total[half][j], rows, columns, T{});
        }
      }
    }
  }
  auto* const shared = reinterpret_cast<float*>(dynamic_shared());
  constexpr int width = RankTiles * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < RankTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = half * 16 + group + i / 2 * 8;
        shared[(warp * project_rows + row) * width + j * 8 + quad * 2 + i % 2] = total[half][j][i];
      }
    }
  }
  sync_block();
  for (int item = static_cast<int>(threadIdx.x); item < project_rows * width; item += threads) {
    const int row = item / width;
    const int r = item % width;
    if (first + row >= a.tokens || r >= a.rank) continue;
    float sum_of_warps = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) sum_of_warps += shared[(w * project_rows + row) * width + r];
    a.z[(first + row) * a.z_stride + r] = from_float<T>(a.scale * sum_of_warps);
  }
}

constexpr int add_columns = 32;  // of a warp
constexpr int add_rows = 32;

// A warp keeps the factor's fragments of its 32 columns and goes over rows, 32 at a time. Tile j's column n stands for
// 8 (n / 2) + 2 j + n % 2, so that a lane has 8 neighbours.
template <class T, int RankSteps>
__global__ void __launch_bounds__(threads) add_kernel(const __grid_constant__ Add<T> a) {
  const auto [warp, group, quad] = Lane();
  const int begin = (static_cast<int>(blockIdx.x) * warps + warp) * add_columns;
  const int column = begin + quad * 8;
  std::uint32_t factor[RankSteps][4][2];
#pragma unroll
  for (int k = 0; k < RankSteps; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = begin + group / 2 * 8 + 2 * j + group % 2;
        const int r = k * 16 + quad * 2 + i * 8;
        const T* const at = a.factor + static_cast<std::int64_t>(r) * a.columns + c;
        const T none = from_float<T>(0.0F);
        factor[k][j][i] =
            paired(c < a.columns && r < a.rank ? at[0] : none, c < a.columns && r + 1 < a.rank ? at[a.columns] : none);
      }
    }
  }
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * add_rows; first < a.tokens;
       first += static_cast<std::int64_t>(gridDim.y) * add_rows) {
    Pack<T, 8> x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = first + group + 8 * i;
      if (row < a.tokens && column < a.columns) x[i] = load<8>(a.x + row * a.x_stride + column);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total[4][4] = {};
#pragma unroll
      for (int k = 0; k < RankSteps; ++k) {
        std::uint32_t z[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::int64_t row = first + half * 16 + group + i % 2 * 8;
          const int r = k * 16 + quad * 2 + i / 2 * 8;
          const T* const at = a.z + row * a.z_stride + r;
          const T none = from_float<T>(0.0F);
          z[i] = paired(row < a.tokens && r < a.rank ? at[0] : none, row < a.tokens && r + 1 < a.rank ? at[1] : none);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) mma(total[j], z, factor[k][j], T{});
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int64_t row = first + half * 16 + i * 8 + group;
        if (row >= a.tokens || column >= a.columns) continue;
        Pack<T, 8>& out = x[half * 2 + i];
#pragma unroll
        for (int c = 0; c < 8; ++c) out.at[c] = from_float<T>(to_float(out.at[c]) + total[c / 2][i * 2 + c % 2]);
        store(a.x + row * a.x_stride + column, out);
      }
    }
  }
}

constexpr int gradient_columns = 64;  // of a warp

// A warp takes 64 columns and a part of the tokens, 16 at a time: k = 2q, 2q+1, 2q+8, 2q+9 are tokens 4q … 4q+3. A lane
// has 8 columns of them; product m's rows g and g + 8 are its columns 2m and 2m + 1.
template <class T, int RankTiles>
__global__ void __launch_bounds__(threads) gradient_kernel(const __grid_constant__ Gradient<T> a) {
  const auto [warp, group, quad] = Lane();
  const int column = (static_cast<int>(blockIdx.x) * warps + warp) * gradient_columns + group * 8;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * a.tokens_of_part;
  const std::int64_t end = begin + a.tokens_of_part < a.tokens ? begin + a.tokens_of_part : a.tokens;
  float total[4][RankTiles][4] = {};
#pragma unroll 2
  for (std::int64_t first = begin + quad * 4; first - quad * 4 < end; first += 16) {
    Words x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = words_or_zero(a.x + (first + i) * a.x_stride + column, first + i < end && column < a.columns);
    }
    std::uint32_t z[RankTiles][2];
#pragma unroll
    for (int j = 0; j < RankTiles; ++j) {
      const int r = j * 8 + group;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const T* const at = a.z + (first + 2 * i) * a.z_stride + r;
        const T none = from_float<T>(0.0F);
        z[j][i] = paired(r < a.rank && first + 2 * i < end ? at[0] : none,
                         r < a.rank && first + 2 * i + 1 < end ? at[a.z_stride] : none);
      }
    }
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const std::uint32_t columns[4] = {
          (x[0].at[m] & 0xffffU) | x[1].at[m] << 16, x[0].at[m] >> 16 | (x[1].at[m] & 0xffff0000U),
          (x[2].at[m] & 0xffffU) | x[3].at[m] << 16, x[2].at[m] >> 16 | (x[3].at[m] & 0xffff0000U)};
#pragma unroll
      for (int j = 0; j < RankTiles; ++j) mma(total[m][j], columns, z[j], T{});
    }
  }
  if (column >= a.columns) return;
  float* const part = a.parts + static_cast<std::int64_t>(blockIdx.y) * a.rank * a.columns;
#pragma unroll
  for (int j = 0; j < RankTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = j * 8 + quad * 2 + i;
      if (r >= a.rank) continue;
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const Pack<float, 2> pair = {{total[m][j][i], total[m][j][2 + i]}};
        store(part + static_cast<std::int64_t>(r) * a.columns + column + 2 * m, pair);
      }
    }
  }
}

void check(const LoraShape& shape) {
  require(shape.tokens >= 0 && shape.columns > 0 && shape.columns < (1 << 25), "tokens >= 0, 0 < columns < 2^25");
  require(shape.rank >= 1 && shape.rank <= most_rank, "a rank of 1 to 64");
  require(shape.x_stride >= shape.columns && shape.z_stride >= shape.rank, "strides of at least columns and rank");
}

template <class F>
void with_tiles(std::int64_t rank, int of, const F& f) {
  const int tiles = ceil_div(rank, of);
  if (tiles <= 1) return f(std::integral_constant<int, 1>{});
  if (tiles <= 2) return f(std::integral_constant<int, 2>{});
  if (tiles <= 4) return f(std::integral_constant<int, 4>{});
  return f(std::integral_constant<int, 8>{});
}

// Tokens of a part: a multiple of 16, so that whole steps stay together.
std::int64_t tokens_of_part(const LoraShape& shape) {
  return ceil_div(ceil_div(shape.tokens, 16), lora_part_count(shape)) * std::int64_t{16};
}

}  // namespace

void lora_project(const LoraShape& shape, Type type, const LoraProject<void>& a, Stream stream) {
  check(shape);
  if (shape.tokens == 0) return;
  const bool wide = multiples_of(8, shape.columns, shape.x_stride) && aligned_to<16>(a.x, a.factor);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const Project<T> arguments = {.x = static_cast<const T*>(a.x),
                                  .factor = static_cast<const T*>(a.factor),
                                  .z = static_cast<T*>(a.z),
                                  .tokens = shape.tokens,
                                  .x_stride = shape.x_stride,
                                  .z_stride = shape.z_stride,
                                  .columns = static_cast<int>(shape.columns),
                                  .rank = static_cast<int>(shape.rank),
                                  .scale = static_cast<float>(a.scale)};
    if constexpr (sizeof(T) == 2) {
      if (wide) {
        const dim3 grid(static_cast<unsigned>(ceil_div(shape.tokens, project_rows)));
        with_tiles(shape.rank, 8, [&](auto tiles) {
          const std::size_t shared = sizeof(float) * warps * project_rows * 8 * tiles();
          launch(project_kernel<T, tiles()>, grid, threads, shared, stream, arguments);
        });
        return;
      }
    }
    const auto blocks = static_cast<unsigned>(ceil_div(shape.tokens, warps));
    launch(plain_project_kernel<T>, dim3(blocks), threads, 0, stream, arguments);
  });
}

void lora_add(const LoraShape& shape, Type type, const LoraAdd<void>& a, Stream stream) {
  check(shape);
  if (shape.tokens == 0) return;
  const bool wide = multiples_of(8, shape.columns, shape.x_stride) && aligned_to<16>(a.x);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const Add<T> arguments = {.z = static_cast<const T*>(a.z),
                              .factor = static_cast<const T*>(a.factor),
                              .x = static_cast<T*>(a.x),
                              .tokens = shape.tokens,
                              .x_stride = shape.x_stride,
                              .z_stride = shape.z_stride,
                              .columns = static_cast<int>(shape.columns),
                              .rank = static_cast<int>(shape.rank)};
    if constexpr (sizeof(T) == 2) {
      if (wide) {
        const int tiles = ceil_div(shape.columns, warps * add_columns);
        const int rows = std::min({ceil_div(shape.tokens, add_rows), ceil_div(8 * processors(), tiles), 65535});
        const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(rows));
        with_tiles(shape.rank, 16, [&](auto steps) {
          if constexpr (steps() <= 4) launch(add_kernel<T, steps()>, grid, threads, 0, stream, arguments);
        });
        return;
      }
    }
    const dim3 grid(static_cast<unsigned>(ceil_div(shape.columns, threads)),
                    static_cast<unsigned>(std::min<std::int64_t>(shape.tokens, 65535)));
    launch(plain_add_kernel<T>, grid, threads, 0, stream, arguments);
  });
}

std::int64_t lora_part_count(const LoraShape& shape) {
  const int tiles = ceil_div(shape.columns, warps * gradient_columns);
  return std::clamp<std::int64_t>(ceil_div(2 * processors(), tiles), 1, std::min(8, ceil_div(shape.tokens + 1, 16)));
}

namespace {

template <class T>
Gradient<T> gradient_of(const LoraShape& shape, const void* z, const void* x, float* parts) {
  return {.z = static_cast<const T*>(z),
          .x = static_cast<const T*>(x),
          .parts = parts,
          .tokens = shape.tokens,
          .tokens_of_part = tokens_of_part(shape),
          .x_stride = shape.x_stride,
          .z_stride = shape.z_stride,
          .columns = static_cast<int>(shape.columns),
          .rank = static_cast<int>(shape.rank)};
}

template <class T>
void launch_plain_gradient(const LoraShape& shape, const Gradient<T>& arguments, Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(shape.columns, threads)),
                  static_cast<unsigned>(lora_part_count(shape)));
  launch(plain_gradient_kernel<T>, grid, threads, 0, stream, arguments);
}

int tiles_of(const LoraShape& shape) { return ceil_div(shape.columns, warps * backward_columns); }

template <class T>
void launch_backward(const LoraShape& shape, const LoraBackward<void>& a, Stream stream) {
  const Backward<T> arguments = {gradient_of<T>(shape, a.z, a.x, a.parts), static_cast<const T*>(a.factor),
                                 a.workspace};
  const dim3 grid(static_cast<unsigned>(tiles_of(shape)), static_cast<unsigned>(lora_part_count(shape)));
  with_tiles(shape.rank, 16, [&](auto tiles) {
    if constexpr (tiles() <= 4) {
      launch(backward_kernel<T, tiles()>, grid, threads, sizeof(BackwardTiles<T, tiles()>), stream, arguments);
    }
  });
  if (shape.tokens == 0) return;
  const dim3 blocks(static_cast<unsigned>(ceil_div(shape.tokens * shape.rank, threads)));
  launch(add_tiles_kernel<T>, blocks, threads, 0, stream, arguments, tiles_of(shape), static_cast<float>(a.scale),
         static_cast<T*>(a.dz));
}

}  // namespace

void lora_gradient(const LoraShape& shape, Type type, const LoraGradient<void>& a, Stream stream) {
  check(shape);
  if (shape.tokens == 0) return;
  const bool wide = multiples_of(8, shape.columns, shape.x_stride) && aligned_to<16>(a.x, a.parts);
  const std::int64_t parts = lora_part_count(shape);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const Gradient<T> arguments = gradient_of<T>(shape, a.z, a.x, a.parts);
    if constexpr (sizeof(T) == 2) {
      if (wide) {
        const dim3 grid(static_cast<unsigned>(ceil_div(shape.columns, warps * gradient_columns)),
                        static_cast<unsigned>(parts));
        with_tiles(shape.rank, 8,
                   [&](auto tiles) { launch(gradient_kernel<T, tiles()>, grid, threads, 0, stream, arguments); });
        return;
      }
    }
    launch_plain_gradient(shape, arguments, stream);
  });
  add_parts(shape.rank * shape.columns, parts, a.parts, a.gradient, stream);
}

std::int64_t lora_backward_workspace(const LoraShape& shape) { return tiles_of(shape) * shape.tokens * shape.rank; }

void lora_backward(const LoraShape& shape, Type type, const LoraBackward<void>& a, Stream stream) {
  check(shape);
  const bool wide = multiples_of(8, shape.columns, shape.x_stride) && aligned_to<16>(a.x, a.factor, a.parts);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      if (wide) return launch_backward<T>(shape, a, stream);
    }
    launch_plain_gradient(shape, gradient_of<T>(shape, a.z, a.x, a.parts), stream);
    lora_project(shape, type, {.x = a.x, .factor = a.factor, .z = a.dz, .scale = a.scale}, stream);
  });
}

void lora_add_parts(std::int64_t size, std::int64_t count, const float* parts, float* gradient, Stream stream) {
  add_parts(size, count, parts, gradient, stream);
}

}  // namespace plumb::kernels
