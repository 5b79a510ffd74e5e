// dz = s dy·Bᵀ and dB = zᵀ·dy in one pass over dy, on the tensor cores: only lora.cu includes it.
// A block has 512 columns, 64 to each warp, and a part of the tokens, 16 at a time. Each warp puts its piece of dy into
// shared memory, where one product reads it by rows (dz, k = columns) and the other by columns (dB, k = tokens). dB
// stays in registers until the part ends; the eight warps' shares of dz are added up and left for each tile of 512
// columns.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"
#include "kernels/lora_plain.cuh"

namespace plumb::kernels {
namespace {

constexpr int backward_columns = 64;  // of a warp
constexpr int backward_tokens = 16;   // of a step

template <class T>
struct Backward : Gradient<T> {
  const T* factor;
  float* sums;  // [tiles of columns, tokens, rank]
};

template <class T, int RankTiles>  // of 16
struct alignas(16) BackwardTiles {
  static constexpr int ranks = 16 * RankTiles;
  static constexpr int wide = warps * backward_columns + 8;
  static constexpr int narrow = backward_columns + 8;
  T factor[ranks * wide];
  T x[warps][backward_tokens * narrow];
  float shares[2][warps][backward_tokens * ranks];  // in turn: who is fast writes the next while who is slow reads
};

// Of the warp's 16 × 64 elements a lane has four packs.
template <class T>
__device__ __forceinline__ void fetch(const Backward<T>& a, std::int64_t first, std::int64_t end, int begin_column,
                                      device::Pack<T, 8> (&ahead)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % device::warp_size;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t token = first + i * 4 + lane / 8;
    const int column = begin_column + lane % 8 * 8;
    ahead[i] =
        token < end && column < a.columns ? device::load<8>(a.x + token * a.x_stride + column) : device::Pack<T, 8>{};
  }
}

template <class T, int RankTiles>
__device__ __forceinline__ void put_factor(const Backward<T>& a, int begin_column, BackwardTiles<T, RankTiles>& tiles) {
  using Of = BackwardTiles<T, RankTiles>;
  constexpr int packs = warps * backward_columns / 8;
  for (int item = static_cast<int>(threadIdx.x); item < Of::ranks * packs; item += threads) {
    const int r = item / packs;
    const int column = item % packs * 8;
    const bool there = r < a.rank && begin_column + column < a.columns;
    device::store(tiles.factor + r * Of::wide + column,
                  there ? device::load<8>(a.factor + static_cast<std::int64_t>(r) * a.columns + begin_column + column)
                        : device::Pack<T, 8>{});
  }
}

// zᵀ of 16 tokens as mma's first factor: rows are ranks.
template <class T, int RankTiles>
__device__ __forceinline__ void load_z(const Backward<T>& a, std::int64_t first, std::int64_t end,
                                       std::uint32_t (&z)[RankTiles][4]) {
  using namespace device;
  const Lane lane;
#pragma unroll
  for (int m = 0; m < RankTiles; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = m * 16 + lane.group + i % 2 * 8;
      const std::int64_t token = first + lane.quad * 2 + i / 2 * 8;
      const T* const at = a.z + token * a.z_stride + r;
      const T none = from_float<T>(0.0F);
      z[m][i] = paired(r < a.rank && token < end ? at[0] : none, r < a.rank && token + 1 < end ? at[a.z_stride] : none);
    }
  }
}

// The warp's share of dz: its 64 columns' part of the sum.
template <class T, int RankTiles>
__device__ __forceinline__ void put_share(BackwardTiles<T, RankTiles>& tiles, int turn) {
  using namespace device;
  using Of = BackwardTiles<T, RankTiles>;
  const Lane lane;
  float dz[2 * RankTiles][4] = {};
#pragma unroll
  for (int k = 0; k < backward_columns / 16; ++k) {
    std::uint32_t tokens[4];
    load_a(tokens, tiles.x[lane.warp] + k * 16, Of::narrow);
#pragma unroll
    for (int j = 0; j < 2 * RankTiles; ++j) {
      std::uint32_t ranks[2];
      load_b(ranks, tiles.factor + j * 8 * Of::wide + lane.warp * backward_columns + k * 16, Of::wide);
      mma(dz[j], tokens, ranks, T{});
    }
  }
#pragma unroll
  for (int j = 0; j < 2 * RankTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Pack<float, 2> pair = {{dz[j][2 * i], dz[j][2 * i + 1]}};
      store(tiles.shares[turn][lane.warp] + (lane.group + i * 8) * Of::ranks + j * 8 + lane.quad * 2, pair);
    }
  }
}

template <class T, int RankTiles>
__device__ __forceinline__ void add_shares(const Backward<T>& a, std::int64_t first, std::int64_t end,
                                           const BackwardTiles<T, RankTiles>& tiles, int turn) {
  using Of = BackwardTiles<T, RankTiles>;
  for (int item = static_cast<int>(threadIdx.x); item < backward_tokens * Of::ranks; item += threads) {
    const std::int64_t token = first + item / Of::ranks;
    const int r = item % Of::ranks;
    if (token >= end || r >= a.rank) continue;
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) total += tiles.shares[turn][warp][item];
    a.sums[(static_cast<std::int64_t>(blockIdx.x) * a.tokens + token) * a.rank + r] = total;
  }
}

template <class T, int RankTiles>
__global__ void __launch_bounds__(threads) backward_kernel(const __grid_constant__ Backward<T> a) {
  using namespace device;
  using Of = BackwardTiles<T, RankTiles>;
  auto& tiles = *reinterpret_cast<Of*>(dynamic_shared());
  const Lane lane;
  const int first_column = static_cast<int>(blockIdx.x) * warps * backward_columns;
  const int column = first_column + lane.warp * backward_columns;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * a.tokens_of_part;
  const std::int64_t end = begin + a.tokens_of_part < a.tokens ? begin + a.tokens_of_part : a.tokens;
  put_factor(a, first_column, tiles);
  float total[RankTiles][8][4] = {};
  Pack<T, 8> ahead[4];
  fetch(a, begin, end, column, ahead);
  sync_block();  // the factor is there
  int turn = 0;
  for (std::int64_t first = begin; first < end; first += backward_tokens) {
    T* const mine = tiles.x[lane.warp];
    const int place = static_cast<int>(threadIdx.x) % warp_size;
    sync_warp();  // the last step's have been read
#pragma unroll
    for (int i = 0; i < 4; ++i) store(mine + (i * 4 + place / 8) * Of::narrow + place % 8 * 8, ahead[i]);
    sync_warp();
    fetch(a, first + backward_tokens, end, column, ahead);
    std::uint32_t z[RankTiles][4];
    load_z(a, first, end, z);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      std::uint32_t columns[2];
      load_b_transposed(columns, mine + n * 8, Of::narrow);
#pragma unroll
      for (int m = 0; m < RankTiles; ++m) mma(total[m][n], z[m], columns, T{});
    }
    put_share(tiles, turn);
    sync_block();
    add_shares(a, first, end, tiles, turn);
    turn = 1 - turn;
  }
  float* const part = a.parts + static_cast<std::int64_t>(blockIdx.y) * a.rank * a.columns;
#pragma unroll
  for (int m = 0; m < RankTiles; ++m) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = m * 16 + lane.group + i * 8;
        const int at = column + n * 8 + lane.quad * 2;
        if (r >= a.rank || at >= a.columns) continue;
        const Pack<float, 2> pair = {{total[m][n][2 * i], total[m][n][2 * i + 1]}};
        store(part + static_cast<std::int64_t>(r) * a.columns + at, pair);
      }
    }
  }
}

// dz = scale · the sum over the tiles of columns, in their order.
template <class T>
__global__ void __launch_bounds__(threads)
    add_tiles_kernel(const __grid_constant__ Backward<T> a, int count, float scale, T* dz) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (item >= a.tokens * a.rank) return;
  float total = 0;
#pragma unroll 4
  for (int tile = 0; tile < count; ++tile) total += a.sums[tile * a.tokens * a.rank + item];
  dz[item / a.rank * a.z_stride + item % a.rank] = device::from_float<T>(scale * total);
}

}  // namespace
}  // namespace plumb::kernels
