// The gradients of queries, keys, beta and log_decay of a chunk, from what the two scans left: only
// gated_delta_backward.cu includes it, and says the formulas. Chunks are independent here: a block has one.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"
#include "kernels/gated_delta/gated_delta_chunk.cuh"
#include "kernels/gated_delta/gated_delta_state.cuh"

namespace plumb::kernels {
namespace {

template <class T>
struct Pairs {
  Rule<T> rule;      // its states and writes are read
  const T* doutput;  // dO
  const T* right;    // dR
  const T* dstates;
  T* dquery;
  T* dkey;
  float* dbeta;
  float* dlog_decay;
};

template <class T, int Keys>
struct alignas(32) PairTiles {
  static constexpr int wide = Keys + 8;
  static constexpr int narrow = chunk + 8;
  static constexpr int values = value_columns + 8;
  T query[chunk * wide];
  T key[chunk * wide];
  T state[value_columns * wide];
  T dstate[value_columns * wide];
  T gradient[chunk * values];  // dO
  T right[chunk * values];
  T writes[chunk * values];
  T score[chunk * narrow];     // D_ij exp(decay_i − decay_j), j ≤ i
  T coupling[chunk * narrow];  // −beta_i E_ij exp(decay_i − decay_j), j < i
  float decay[chunk];
  float rest[chunk];
  float grown[chunk];
  float left[chunk];
  float beta[chunk];
  float along[3][2][chunk];       // q·(S dO), k·(S dR), k·(dS U), by halves of the keys; scaled
  float value[chunk];             // dR·v
  float of_rows[2][8][chunk];     // sums of D q·k and E k·k over a tile's columns, by tile
  float of_columns[2][4][chunk];  // and over its rows, beta_i before E
  float dlog[chunk];
  float warps[8];
};

// The warp's 16 steps and half of the keys.
template <int Keys>
struct Along {
  static constexpr int tiles = Keys / 16;
  float query[tiles][4];
  float reader[tiles][4];
  float writer[tiles][4];
};

template <class T>
__device__ __forceinline__ void load_tile(const T* from, int width, int rows, T* tile, int stride) {
  for (int item = static_cast<int>(threadIdx.x); item < chunk * width / 8; item += threads) {
    const int row = item / (width / 8);
    const int column = item % (width / 8) * 8;
    device::store(
        tile + row * stride + column,
        row < rows ? device::load<8>(from + static_cast<std::int64_t>(row) * width + column) : device::Pack<T, 8>{});
  }
}

template <class T>
__device__ __forceinline__ float dot(const device::Pack<T, 8>& a, const device::Pack<T, 8>& b) {
  float total = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) total += device::to_float(a.at[i]) * device::to_float(b.at[i]);
  return total;
}

// 32 value columns of everything; adds to the thread's shares of dR·v of its row and of ⟨S, dS⟩.
template <class T, int Keys>
__device__ __forceinline__ void load_slice(const Pairs<T>& a, int column, PairTiles<T, Keys>& tiles, float& of_value,
                                           float& of_states) {
  using namespace device;
  using Of = PairTiles<T, Keys>;
  const Rule<T>& rule = a.rule;
  const int first = static_cast<int>(blockIdx.x) * chunk;
  const int row = static_cast<int>(threadIdx.x) / 4;
  const int at = static_cast<int>(threadIdx.x) % 4 * 8;
  const std::int64_t step = static_cast<std::int64_t>(blockIdx.y) * rule.time + first + row;
  const std::int64_t from = step * rule.value_dim + column + at;
  const bool there = first + row < rule.time;
  const Pack<T, 8> right = there ? load<8>(a.right + from) : Pack<T, 8>{};
  store(tiles.gradient + row * Of::values + at, there ? load<8>(a.doutput + from) : Pack<T, 8>{});
  store(tiles.writes + row * Of::values + at, there ? load<8>(rule.writes + from) : Pack<T, 8>{});
  store(tiles.right + row * Of::values + at, right);
  if (there) of_value += dot(right, load<8>(rule.value + from));
  const std::int64_t states =
      ((static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * rule.value_dim + column) * Keys;
#pragma unroll
  for (int item = static_cast<int>(threadIdx.x); item < value_columns * Keys / 8; item += threads) {
    const int to = item / (Keys / 8) * Of::wide + item % (Keys / 8) * 8;
    const Pack<T, 8> state = load<8>(rule.states + states + static_cast<std::int64_t>(item) * 8);
    const Pack<T, 8> dstate = load<8>(a.dstates + states + static_cast<std::int64_t>(item) * 8);
    store(tiles.state + to, state);
    store(tiles.dstate + to, dstate);
    of_states += dot(state, dstate);
  }
}

// The slice's part of S dO, S dR and dS U.
template <class T, int Keys>
__device__ __forceinline__ void add_along(const PairTiles<T, Keys>& tiles, Along<Keys>& along) {
  using namespace device;
  using Of = PairTiles<T, Keys>;
  const Lane lane;
  const int rows = lane.warp % 4 * 16 * Of::values;
#pragma unroll(steps_at_once <T>)
  for (int k = 0; k < value_columns / 16; ++k) {
    RowOperand<T> gradient;
    RowOperand<T> right;
    RowOperand<T> writes;
    load_a(gradient, tiles.gradient + rows + k * 16, Of::values);
    load_a(right, tiles.right + rows + k * 16, Of::values);
    load_a(writes, tiles.writes + rows + k * 16, Of::values);
#pragma unroll
    for (int n = 0; n < Along<Keys>::tiles; ++n) {
      const int at = k * 16 * Of::wide + lane.warp / 4 * (Keys / 2) + n * 8;
      ColumnOperand<T> b;
      load_b_transposed(b, tiles.state + at, Of::wide);
      mma(along.query[n], gradient, b, T{});
      mma(along.reader[n], right, b, T{});
      load_b_transposed(b, tiles.dstate + at, Of::wide);
      mma(along.writer[n], writes, b, T{});
    }
  }
}

// Over the four lanes of a row.
__device__ __forceinline__ float quad_sum(float x) {
  x += device::shuffle_xor(x, 1);
  x += device::shuffle_xor(x, 2);
  return x;
}

// Puts the pairs, with their decay, where the next products want them, and sums what they are worth. Warps 0 to 3 have
// E and k·k, 4 to 7 D and q·k.
template <class T, int Keys>
__device__ __forceinline__ void put_pairs(const PairPlace& place, const float (&pair)[5][4],
                                          const float (&product)[5][4], PairTiles<T, Keys>& tiles) {
  using namespace device;
  using Of = PairTiles<T, Keys>;
  const Lane lane;
  const bool is_score = lane.warp >= 4;
#pragma unroll
  for (int t = 0; t < 5; ++t) {
    float of_row[2] = {};
    float of_column[2] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = place.m[t] * 16 + lane.group + i / 2 * 8;
      const int column = place.n[t] * 8 + lane.quad * 2 + i % 2;
      const bool seen = is_score ? column <= row : column < row;
      const float value = decayed(tiles, seen, row, column, pair[t][i]);
      const float factor = is_score ? 1.0F : tiles.beta[row];
      of_row[i / 2] += value * product[t][i];
      of_column[i % 2] += factor * value * product[t][i];
      if (is_score) {
        tiles.score[row * Of::narrow + column] = from_float<T>(value);
      } else {
        tiles.coupling[row * Of::narrow + column] = from_float<T>(-factor * value);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      of_row[i] = quad_sum(of_row[i]);
      of_column[i] += shuffle_xor(of_column[i], 4);
      of_column[i] += shuffle_xor(of_column[i], 8);
      of_column[i] += shuffle_xor(of_column[i], 16);
      if (lane.quad == 0) tiles.of_rows[is_score ? 0 : 1][place.n[t]][place.m[t] * 16 + lane.group + i * 8] = of_row[i];
      if (lane.group == 0) {
        tiles.of_columns[is_score ? 0 : 1][place.m[t]][place.n[t] * 8 + lane.quad * 2 + i] = of_column[i];
      }
    }
  }
}

// Scales what goes along the state and sums its products with query and key.
template <class T, int Keys>
__device__ __forceinline__ void scale_along(Along<Keys>& along, PairTiles<T, Keys>& tiles) {
  using namespace device;
  using Of = PairTiles<T, Keys>;
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane.warp % 4 * 16 + lane.group + i * 8;
    const float grown = tiles.grown[row];
    const float fading = tiles.left[row];
    float total[3] = {};
#pragma unroll
    for (int n = 0; n < Along<Keys>::tiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = row * Of::wide + lane.warp / 4 * (Keys / 2) + n * 8 + lane.quad * 2 + j;
        along.query[n][2 * i + j] *= grown;
        along.reader[n][2 * i + j] *= grown;
        along.writer[n][2 * i + j] *= fading;
        total[0] += along.query[n][2 * i + j] * to_float(tiles.query[at]);
        total[1] += along.reader[n][2 * i + j] * to_float(tiles.key[at]);
        total[2] += along.writer[n][2 * i + j] * to_float(tiles.key[at]);
        along.writer[n][2 * i + j] -= tiles.beta[row] * along.reader[n][2 * i + j];  // from here on dk
      }
    }
#pragma unroll
    for (int which = 0; which < 3; ++which) {
      total[which] = quad_sum(total[which]);
      if (lane.quad == 0) tiles.along[which][lane.warp / 4][row] = total[which];
    }
  }
}

// Adds the pairs' part of dq (query) and dk (writer).
template <class T, int Keys>
__device__ __forceinline__ void add_within(const PairTiles<T, Keys>& tiles, Along<Keys>& along) {
  using namespace device;
  using Of = PairTiles<T, Keys>;
  const Lane lane;
  const int own = lane.warp % 4;
  const int half = lane.warp / 4 * (Keys / 2);
#pragma unroll
  for (int other = 0; other < 4; ++other) {
    RowOperand<T> a;
    ColumnOperand<T> b;
    if (other <= own) {
      RowOperand<T> readers;
      load_a(a, tiles.score + own * 16 * Of::narrow + other * 16, Of::narrow);
      load_a(readers, tiles.coupling + own * 16 * Of::narrow + other * 16, Of::narrow);
#pragma unroll
      for (int n = 0; n < Along<Keys>::tiles; ++n) {
        load_b_transposed(b, tiles.key + other * 16 * Of::wide + half + n * 8, Of::wide);
        mma(along.query[n], a, b, T{});
        mma(along.writer[n], readers, b, T{});
      }
    }
    if (other >= own) {
      RowOperand<T> writers;
      load_a_transposed(a, tiles.score + other * 16 * Of::narrow + own * 16, Of::narrow);
      load_a_transposed(writers, tiles.coupling + other * 16 * Of::narrow + own * 16, Of::narrow);
#pragma unroll
      for (int n = 0; n < Along<Keys>::tiles; ++n) {
        load_b_transposed(b, tiles.query + other * 16 * Of::wide + half + n * 8, Of::wide);
        mma(along.writer[n], a, b, T{});
        load_b_transposed(b, tiles.key + other * 16 * Of::wide + half + n * 8, Of::wide);
        mma(along.writer[n], writers, b, T{});
      }
    }
  }
}

template <class T, int Keys>
__device__ __forceinline__ void write_rows(const Pairs<T>& a, const Along<Keys>& along) {
  using namespace device;
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int time = static_cast<int>(blockIdx.x) * chunk + lane.warp % 4 * 16 + lane.group + i * 8;
    if (time >= a.rule.time) continue;
    const std::int64_t at = (static_cast<std::int64_t>(blockIdx.y) * a.rule.time + time) * Keys +
                            lane.warp / 4 * (Keys / 2) + lane.quad * 2;
#pragma unroll
    for (int n = 0; n < Along<Keys>::tiles; ++n) {
      put_pair(a.dquery + at + n * 8, along.query[n][2 * i], along.query[n][2 * i + 1]);
      put_pair(a.dkey + at + n * 8, along.writer[n][2 * i], along.writer[n][2 * i + 1]);
    }
  }
}

// dbeta, and dlog_decay before its sum from the chunk's end: of step `row`.
template <class T, int Keys>
__device__ __forceinline__ float numbers_of(int row, float of_states, const PairTiles<T, Keys>& tiles, float& dbeta) {
  float of_row[2] = {};
  float of_column[2] = {};
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    for (int n = 0; n < 2 * (row / 16) + 2; ++n) of_row[which] += tiles.of_rows[which][n][row];
    for (int m = row / 16; m < 4; ++m) of_column[which] += tiles.of_columns[which][m][row];
  }
  const auto along = [&](int which, int step) { return tiles.along[which][0][step] + tiles.along[which][1][step]; };
  const float recalled = along(1, row) + of_row[1];
  dbeta = tiles.value[row] - recalled;
  float total = along(0, row) + of_row[0] - of_column[0] - tiles.beta[row] * recalled + of_column[1] - along(2, row);
  if (row == chunk - 1) {
    total += tiles.grown[row] * of_states;
    for (int step = 0; step < chunk; ++step) total += along(2, step);
  }
  return total;
}

template <class T, int Keys>
__global__ void __launch_bounds__(threads, 1) pairs_kernel(const __grid_constant__ Pairs<T> a) {
  using namespace device;
  using Of = PairTiles<T, Keys>;
  auto& tiles = *reinterpret_cast<Of*>(dynamic_shared());
  const Rule<T>& rule = a.rule;
  const Lane lane;
  const int thread = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * chunk;
  const int rows = rule.time - first < chunk ? rule.time - first : chunk;
  const std::int64_t step = static_cast<std::int64_t>(blockIdx.y) * rule.time + first;
  float numbers[2];
  fetch_pair(rule, static_cast<std::int64_t>(blockIdx.y), first, numbers);
  put_decays(numbers, tiles);
  load_tile(rule.query + step * Keys, Keys, rows, tiles.query, Of::wide);
  load_tile(rule.key + step * Keys, Keys, rows, tiles.key, Of::wide);
  const PairPlace place;
  Along<Keys> along = {};
  float pair[5][4] = {};
  float of_value = 0;
  float of_states = 0;
  for (int column = 0; column < rule.value_dim; column += value_columns) {
    sync_block();  // the last slice has been read
    load_slice(a, column, tiles, of_value, of_states);
    sync_block();
    add_along(tiles, along);
    add_pairs(place, lane.warp >= 4 ? tiles.gradient : tiles.right, tiles.writes, Of::values, value_columns / 16, pair);
  }
  float product[5][4] = {};
  add_pairs(place, lane.warp >= 4 ? tiles.query : tiles.key, tiles.key, Of::wide, Keys / 16, product);
  put_pairs(place, pair, product, tiles);
  scale_along(along, tiles);
  of_value = quad_sum(of_value);
  if (thread % 4 == 0) tiles.value[thread / 4] = of_value;
  of_states = block_sum<threads / warp_size>(of_states, tiles.warps);  // with barriers: all of the above is there
  add_within(tiles, along);
  write_rows<T, Keys>(a, along);
  float dbeta = 0;
  if (thread < chunk) tiles.dlog[thread] = numbers_of(thread, of_states, tiles, dbeta);
  sync_block();
  if (thread >= rows) return;
  float total = 0;
  for (int later = chunk - 1; later >= thread; --later) total += tiles.dlog[later];
  a.dbeta[step + thread] = dbeta;
  a.dlog_decay[step + thread] = total;
}

}  // namespace
}  // namespace plumb::kernels
