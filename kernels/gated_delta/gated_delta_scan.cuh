// The gated delta rule's backward scan over chunks, from the last to the first: only gated_delta_backward.cu includes
// it, and says the formulas. The state's gradient takes the state's place in a block's tiles, the output's gradient the
// values'.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"
#include "kernels/gated_delta/gated_delta_chunk.cuh"
#include "kernels/gated_delta/gated_delta_state.cuh"

namespace plumb::kernels {
namespace {

template <class T>
struct Scan {
  Rule<T> rule;  // value: the output's gradient; first_state, last_state: of the state's gradient, from the end
  T* right;      // dR [sequences, time, value_dim]
  T* dvalue;
  T* dstates;  // what comes to the state at each chunk's end, as Rule::states
};

template <class T, int Keys>
struct ScanTiles : Tiles<T, Keys> {
  T grown_gradient[chunk * Tiles<T, Keys>::values];  // grown_i dO_i, [time, value column]
  T readers[32 * Tiles<T, Keys>::narrow];            // −beta_i grown_i dR_i, [value column, time]
};

template <class T, int Keys>
__device__ __forceinline__ void grow_gradient(ScanTiles<T, Keys>& tiles) {
  using namespace device;
  const int row = static_cast<int>(threadIdx.x) / 4;
  const int at = row * Tiles<T, Keys>::values + static_cast<int>(threadIdx.x) % 4 * 8;
  Pack<T, 8> pack = load<8>(tiles.value + at);
#pragma unroll
  for (int i = 0; i < 8; ++i) pack.at[i] = from_float<T>(tiles.grown[row] * to_float(pack.at[i]));
  store(tiles.grown_gradient + at, pack);
}

// Warps 0 and 1, 16 value columns each: dU, transposed, as right_sides has its result.
template <class T, int Keys>
__device__ __forceinline__ void writes_gradient(const ScanTiles<T, Keys>& tiles, float (&right)[8][4]) {
  using namespace device;
  using Of = Tiles<T, Keys>;
  const Lane lane;
  multiply(tiles.state + lane.warp * 16 * Of::wide, tiles.key, Of::wide, Keys / 16, right);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      right[n][i] *= tiles.left[n * 8 + lane.quad * 2 + i % 2];
    }
  }
#pragma unroll(steps_at_once <T>)
  for (int block = 0; block < 4; ++block) {
    RowOperand<T> gradient;
    load_a_transposed(gradient, tiles.value + block * 16 * Of::values + lane.warp * 16, Of::values);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n >= 2 * block + 2) continue;  // above the diagonal no score stands
      ColumnOperand<T> score;
      load_b_transposed(score, tiles.score + block * 16 * Of::narrow + n * 8, Of::narrow);
      mma(right[n], gradient, score, T{});
    }
  }
}

// Warps 0 and 1: (I + coupling)ᵀ dR = dU, from the last block to the first.
template <class T, int Keys>
__device__ __forceinline__ void solve_transposed(ScanTiles<T, Keys>& tiles, float (&right)[8][4]) {
  using namespace device;
  using Of = Tiles<T, Keys>;
  const Lane lane;
  RowOperand<T> solved[4];
#pragma unroll
  for (int block = 3; block >= 0; --block) {
    ColumnOperand<T> b;
#pragma unroll
    for (int later = 3; later > block; --later) {
      RowOperand<T> behind;
      solved_block(tiles, solved, later, behind);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        load_b_transposed(b, tiles.coupling + later * 16 * Of::narrow + block * 16 + half * 8, Of::narrow);
        mma(right[2 * block + half], behind, b, T{});
      }
    }
    RowOperand<T> rest;
    as_operand<T>(right[2 * block], right[2 * block + 1], rest);
    float made[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_b_transposed(b, tiles.inverse + block * 16 * Of::small + half * 8, Of::small);
      mma(made[half], rest, b, T{});
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int time = block * 16 + half * 8 + lane.quad * 2;
        const int at = (lane.warp * 16 + lane.group + i * 8) * Of::narrow + time;
        const float low = made[half][2 * i];
        const float high = made[half][2 * i + 1];
        const float low_beta = tiles.beta[time];
        const float high_beta = tiles.beta[time + 1];
        put_pair(tiles.writes + at, low, high);
        put_pair(tiles.fading + at, low_beta * low, high_beta * high);
        put_pair(tiles.readers + at, -low_beta * tiles.grown[time] * low, -high_beta * tiles.grown[time + 1] * high);
      }
    }
    as_operand<T>(made[0], made[1], solved[block]);
  }
}

// dS ← exp(last) dS + sum over i of grown_i dO_i q_iᵀ − beta_i grown_i dR_i k_iᵀ.
template <class T, int Keys>
__device__ __forceinline__ void update_gradient(const ScanTiles<T, Keys>& tiles, State<Keys>& state) {
  using namespace device;
  using Of = Tiles<T, Keys>;
  const Lane lane;
  scale(state, tiles.grown[chunk - 1]);
#pragma unroll(steps_at_once <T>)
  for (int k = 0; k < chunk / 16; ++k) {
    const int at = k * 16 * Of::wide + lane.warp / 2 * (Keys / 4);
    RowOperand<T> a;
    load_a_transposed(a, tiles.grown_gradient + k * 16 * Of::values + lane.warp % 2 * 16, Of::values);
#pragma unroll
    for (int n = 0; n < State<Keys>::tiles; ++n) {
      ColumnOperand<T> b;
      load_b_transposed(b, tiles.query + at + n * 8, Of::wide);
      mma(state.at[n], a, b, T{});
    }
    load_a(a, tiles.readers + lane.warp % 2 * 16 * Of::narrow + k * 16, Of::narrow);
#pragma unroll
    for (int n = 0; n < State<Keys>::tiles; ++n) {
      ColumnOperand<T> b;
      load_b_transposed(b, tiles.key + at + n * 8, Of::wide);
      mma(state.at[n], a, b, T{});
    }
  }
}

template <class T, int Keys>
__global__ void __launch_bounds__(threads, 1) scan_kernel(const __grid_constant__ Scan<T> a) {
  using namespace device;
  auto& tiles = *reinterpret_cast<ScanTiles<T, Keys>*>(dynamic_shared());
  const Lane lane;
  const Rule<T>& rule = a.rule;
  State<Keys> state;
  load_first_state(rule, state);
  put_state(state, tiles);
  Ahead<T, Keys> ahead;
  const int last = (rule.time - 1) / chunk * chunk;
  fetch(rule, last, ahead);
  for (int first = last; first >= 0; first -= chunk) {
    sync_block();  // the last chunk's tiles have been read
    put(ahead, tiles);
    sync_block();
    if (first > 0) fetch(rule, first - chunk, ahead);
    scores_and_coupling(tiles);
    grow_gradient(tiles);
    store_state(rule, first, tiles, a.dstates);
    sync_block();
    float right[8][4] = {};
    if (lane.warp < 2) {
      writes_gradient(tiles, right);
    } else if (lane.warp < 4) {
      invert_blocks(tiles);
    }
    sync_block();
    if (lane.warp < 2) solve_transposed(tiles, right);
    sync_block();
    store_turned(rule, first, tiles.writes, a.right);
    store_turned(rule, first, tiles.fading, a.dvalue);
    update_gradient(tiles, state);
    put_state(state, tiles);
  }
  store_last_state(rule, state);
}

}  // namespace
}  // namespace plumb::kernels
