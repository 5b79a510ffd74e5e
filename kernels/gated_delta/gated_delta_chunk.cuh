// The phases of a chunk of the gated delta rule in shared memory; gated_delta.cu says the formulas.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"
#include "kernels/device/wide_mma.cuh"

namespace plumb::kernels {
namespace {

constexpr int chunk = 64;

// Steps of 16 of a product's sum whose operands are loaded ahead: those of fp32 and their halves take four times the
// registers.
template <class T>
constexpr int steps_at_once = sizeof(T) == sizeof(float) ? 1 : 8;

// Rows begin 8 elements further round the banks than the last, so that ldmatrix reads eight of 16-bit elements without
// a conflict; of fp32 see device/wide_mma.cuh.
template <class T, int Keys>
struct alignas(32) Tiles {
  static constexpr int wide = Keys + 8;
  static constexpr int narrow = chunk + 8;
  static constexpr int small = 16 + 8;
  static constexpr int values = 32 + 8;
  T query[chunk * wide];
  T key[chunk * wide];
  T state[32 * wide];          // [value column, key]
  T score[chunk * narrow];     // [time, earlier time]
  T coupling[chunk * narrow];  // negative; without the blocks of the diagonal
  T writes[32 * narrow];       // [value column, time]
  T fading[32 * narrow];       // the writes as the chunk's end sees them
  T inverse[4 * 16 * small];   // [block][time, earlier time]
  T value[chunk * values];
  float diagonal[4 * 16 * 17];
  float decay[chunk];
  float rest[chunk];  // what fp32 does not hold of decay
  float grown[chunk];
  float left[chunk];  // exp(last − decay)
  float beta[chunk];
};

template <class T>
__device__ __forceinline__ void put_pair(T* to, float low, float high) {
  device::store(to, device::Pack<T, 2>{{device::from_float<T>(low), device::from_float<T>(high)}});
}

// Which tiles of 16 × 8, none above the diagonal, a warp has: of the 20 of a matrix [time, earlier time] five to each
// of four warps.
struct PairPlace {
  int m[5];
  int n[5];

  __device__ __forceinline__ PairPlace() {
    const device::Lane lane;
#pragma unroll
    for (int t = 0; t < 5; ++t) {
      const int tile = lane.warp % 4 + 4 * t;
      m[t] = tile < 2 ? 0 : tile < 6 ? 1 : tile < 12 ? 2 : 3;
      n[t] = tile - m[t] * (m[t] + 1);
    }
  }
};

// pair[t] += rows · columnsᵀ over `steps` runs of 16.
template <class T>
__device__ __forceinline__ void add_pairs(const PairPlace& place, const T* rows, const T* columns, int stride,
                                          int steps, float (&pair)[5][4]) {
  using namespace device;
#pragma unroll(steps_at_once <T>)
  for (int k = 0; k < steps; ++k) {
#pragma unroll
    for (int t = 0; t < 5; ++t) {
      RowOperand<T> a;
      ColumnOperand<T> b;
      load_a(a, rows + place.m[t] * 16 * stride + k * 16, stride);
      load_b(b, columns + place.n[t] * 8 * stride + k * 16, stride);
      mma(pair[t], a, b, T{});
    }
  }
}

// exp(decay_row − decay_column). In fp32 the difference of two rounded sums would be off by many times its own
// rounding.
template <class Of>
__device__ __forceinline__ float faded(const Of& tiles, int row, int column) {
  float between = tiles.decay[row] - tiles.decay[column];
  if constexpr (sizeof(tiles.query[0]) == sizeof(float)) between += tiles.rest[row] - tiles.rest[column];
  return expf(between);
}

template <class Of>
__device__ __forceinline__ float decayed(const Of& tiles, bool seen, int row, int column, float pair) {
  // Not before it is known to be seen: the exponential of a later step may overflow.
  return seen ? pair * faded(tiles, row, column) : 0.0F;
}

// Warps 0 to 3 have the coupling, 4 to 7 the scores.
template <class T, int Keys>
__device__ __forceinline__ void scores_and_coupling(Tiles<T, Keys>& tiles) {
  using namespace device;
  using Of = Tiles<T, Keys>;
  const Lane lane;
  const bool is_score = lane.warp >= 4;
  const PairPlace place;
  float dot[5][4] = {};
  add_pairs(place, is_score ? tiles.query : tiles.key, tiles.key, Of::wide, Keys / 16, dot);
#pragma unroll
  for (int t = 0; t < 5; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = place.m[t] * 16 + lane.group + i / 2 * 8;
      const int column = place.n[t] * 8 + lane.quad * 2 + i % 2;
      const bool seen = is_score ? column <= row : column < row;
      float value = decayed(tiles, seen, row, column, dot[t][i]);
      if (is_score) {
        tiles.score[row * Of::narrow + column] = from_float<T>(value);
        continue;
      }
      value *= tiles.beta[row];
      if (place.n[t] / 2 == place.m[t]) {
        tiles.diagonal[(place.m[t] * 16 + row % 16) * 17 + column % 16] = value;
      } else {
        tiles.coupling[row * Of::narrow + column] = from_float<T>(-value);
      }
    }
  }
}

// product[n] += rows · columns[n]ᵀ over `steps` runs of 16, of 16 rows and 8 columns each, all in rows of `stride`.
template <class T, int N>
__device__ __forceinline__ void multiply(const T* rows, const T* columns, int stride, int steps,
                                         float (&product)[N][4]) {
  using namespace device;
#pragma unroll(steps_at_once <T>)
  for (int k = 0; k < steps; ++k) {
    RowOperand<T> a;
    load_a(a, rows + k * 16, stride);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      ColumnOperand<T> b;
      load_b(b, columns + n * 8 * stride + k * 16, stride);
      mma(product[n], a, b, T{});
    }
  }
}

// Warps 0 and 1, 16 value columns each: right[n], transposed, is [16 value columns, times 8n … 8n + 7].
template <class T, int Keys>
__device__ __forceinline__ void right_sides(const Tiles<T, Keys>& tiles, float (&right)[8][4]) {
  using namespace device;
  using Of = Tiles<T, Keys>;
  const Lane lane;
  multiply(tiles.state + lane.warp * 16 * Of::wide, tiles.key, Of::wide, Keys / 16, right);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int time = n * 8 + lane.quad * 2 + i % 2;
      const float value = to_float(tiles.value[time * Of::values + lane.warp * 16 + lane.group + i / 2 * 8]);
      right[n][i] = tiles.beta[time] * (value - tiles.grown[time] * right[n][i]);
    }
  }
}

// Warps 2 and 3, two blocks each: a lane has a column of an inverse, by forward substitution.
template <class T, int Keys>
__device__ __forceinline__ void invert_blocks(Tiles<T, Keys>& tiles) {
  using namespace device;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int block = (static_cast<int>(threadIdx.x) / warp_size - 2) * 2 + lane / 16;
  const int column = lane % 16;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    x[i] = i == column ? 1.0F : 0.0F;
#pragma unroll
    for (int j = 0; j < i; ++j) x[i] -= tiles.diagonal[(block * 16 + i) * 17 + j] * x[j];
    tiles.inverse[(block * 16 + i) * Tiles<T, Keys>::small + column] = from_float<T>(x[i]);
  }
}

// Warps 4 to 7, 16 steps each: out[n] is [16 times, value columns 8n … 8n + 7].
template <class T, int Keys>
__device__ __forceinline__ void from_state(const Tiles<T, Keys>& tiles, float (&out)[4][4]) {
  using namespace device;
  using Of = Tiles<T, Keys>;
  const Lane lane;
  const int first = (lane.warp - 4) * 16;
  multiply(tiles.query + first * Of::wide, tiles.state, Of::wide, Keys / 16, out);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] *= tiles.grown[first + lane.group + i / 2 * 8];
  }
}

template <class T, int Keys>
__device__ __forceinline__ void from_writes(const Tiles<T, Keys>& tiles, float (&out)[4][4]) {
  using Of = Tiles<T, Keys>;
  const int block = device::Lane().warp - 4;
  multiply(tiles.score + block * 16 * Of::narrow, tiles.writes, Of::narrow, block + 1, out);
}

// Two neighbouring accumulators of 8 columns are one operand of 16: the layouts of mma.m16n8k16 fit.
template <class T>
__device__ __forceinline__ void as_operand(const float (&low)[4], const float (&high)[4], device::RowOperand<T>& a) {
  using namespace device;
  if constexpr (sizeof(T) == sizeof(float)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = low[i];
      a[4 + i] = high[i];
    }
  } else {
    a[0] = paired(from_float<T>(low[0]), from_float<T>(low[1]));
    a[1] = paired(from_float<T>(low[2]), from_float<T>(low[3]));
    a[2] = paired(from_float<T>(high[0]), from_float<T>(high[1]));
    a[3] = paired(from_float<T>(high[2]), from_float<T>(high[3]));
  }
}

// What a warp has solved of a block's 16 steps, as an operand: from its registers, where it put it, or, of fp32, whose
// halves would take 64 registers, again from the tile that it wrote.
template <class T, int Keys>
__device__ __forceinline__ void solved_block(const Tiles<T, Keys>& tiles, const device::RowOperand<T> (&kept)[4],
                                             int block, device::RowOperand<T>& a) {
  using namespace device;
  if constexpr (sizeof(T) == sizeof(float)) {
    sync_warp();  // other lanes wrote some of it; and loads ahead of this would take too many registers
    load_a(a, tiles.writes + Lane().warp * 16 * Tiles<T, Keys>::narrow + block * 16, Tiles<T, Keys>::narrow);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = kept[block][i];
  }
}

// Warps 0 and 1, transposed: writesᵀ of a block = (rightᵀ − sum over earlier blocks of writesᵀ · couplingᵀ) · inverseᵀ.
template <class T, int Keys>
__device__ __forceinline__ void solve(Tiles<T, Keys>& tiles, float (&right)[8][4]) {
  using namespace device;
  using Of = Tiles<T, Keys>;
  const Lane lane;
  RowOperand<T> solved[4];
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    ColumnOperand<T> b;
#pragma unroll
    for (int earlier = 0; earlier < block; ++earlier) {
      RowOperand<T> before;
      solved_block(tiles, solved, earlier, before);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        load_b(b, tiles.coupling + (block * 16 + half * 8) * Of::narrow + earlier * 16, Of::narrow);
        mma(right[2 * block + half], before, b, T{});
      }
    }
    RowOperand<T> rest;
    as_operand<T>(right[2 * block], right[2 * block + 1], rest);
    float writes[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_b(b, tiles.inverse + (block * 16 + half * 8) * Of::small, Of::small);
      mma(writes[half], rest, b, T{});
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int time = block * 16 + half * 8 + lane.quad * 2;
        const int at = (lane.warp * 16 + lane.group + i * 8) * Of::narrow + time;
        const float low = writes[half][2 * i];
        const float high = writes[half][2 * i + 1];
        put_pair(tiles.writes + at, low, high);
        put_pair(tiles.fading + at, low * tiles.left[time], high * tiles.left[time + 1]);
      }
    }
    as_operand<T>(writes[0], writes[1], solved[block]);
  }
}

}  // namespace
}  // namespace plumb::kernels
