// A block has 32 value columns of one sequence and goes over its chunks of 64 steps; the state stays in its registers,
// transposed, [32, key_dim], with a copy in shared memory as the products' operand. In a chunk, with
// decay_i = the sum of log_decay up to i, last = decay_63, grown_i = exp(decay_i):
//   1. score_ij = q_i·k_j exp(decay_i − decay_j) for j ≤ i; coupling_ij = beta_i k_i·k_j exp(decay_i − decay_j), j < i
//   2. right_i = beta_i (v_i − grown_i Sᵀk_i);  the inverses of I + coupling's blocks of 16
//   3. (I + coupling) writes = right, block by block;  out_i = grown_i Sᵀq_i
//   4. out_i += sum over j of score_ij writes_j;  S ← exp(last) S + sum over j of k_j (exp(last − decay_j) writes_j)ᵀ
#include "kernels/gated_delta/gated_delta.hpp"

#include "kernels/device/device.cuh"
#include "kernels/gated_delta/gated_delta_chunk.cuh"
#include "kernels/gated_delta/gated_delta_state.cuh"
#include "kernels/gated_delta/gated_delta_steps.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

template <class T, int Keys>
__device__ __forceinline__ void update_state(const Tiles<T, Keys>& tiles, State<Keys>& state) {
  const Lane lane;
  scale(state, tiles.grown[chunk - 1]);
#pragma unroll(steps_at_once <T>)
  for (int k = 0; k < chunk / 16; ++k) {
    RowOperand<T> fading;
    load_a(fading, tiles.fading + lane.warp % 2 * 16 * Tiles<T, Keys>::narrow + k * 16, Tiles<T, Keys>::narrow);
#pragma unroll
    for (int n = 0; n < State<Keys>::tiles; ++n) {
      ColumnOperand<T> key;
      load_b_transposed(key, tiles.key + k * 16 * Tiles<T, Keys>::wide + lane.warp / 2 * (Keys / 4) + n * 8,
                        Tiles<T, Keys>::wide);
      mma(state.at[n], fading, key, T{});
    }
  }
}

template <class T>
__device__ __forceinline__ void write_out(const Rule<T>& a, int first, const float (&out)[4][4]) {
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int time = first + (lane.warp - 4) * 16 + lane.group + i * 8;
    if (time >= a.time) continue;
    T* const row = a.output + (static_cast<std::int64_t>(blockIdx.y) * a.time + time) * a.value_dim +
                   blockIdx.x * value_columns + lane.quad * 2;
#pragma unroll
    for (int n = 0; n < 4; ++n) put_pair(row + n * 8, out[n][2 * i], out[n][2 * i + 1]);
  }
}

template <class T, int Keys>
__global__ void __launch_bounds__(threads, 1) chunk_kernel(const __grid_constant__ Rule<T> a) {
  auto& tiles = *reinterpret_cast<Tiles<T, Keys>*>(dynamic_shared());
  const Lane lane;
  State<Keys> state;
  load_first_state(a, state);
  put_state(state, tiles);
  Ahead<T, Keys> ahead;
  fetch(a, 0, ahead);
  for (int first = 0; first < a.time; first += chunk) {
    sync_block();  // the last chunk's keys have been read
    put(ahead, tiles);
    sync_block();
    if (first + chunk < a.time) fetch(a, first + chunk, ahead);
    scores_and_coupling(tiles);
    if (a.states != nullptr) store_state(a, first, tiles, a.states);
    sync_block();
    float right[8][4] = {};
    float out[4][4] = {};
    if (lane.warp < 2) {
      right_sides(tiles, right);
    } else if (lane.warp < 4) {
      invert_blocks(tiles);
    }
    sync_block();
    if (lane.warp < 2) {
      solve(tiles, right);
    } else if (lane.warp >= 4) {
      from_state(tiles, out);
    }
    sync_block();
    if (a.writes != nullptr) store_turned(a, first, tiles.writes, a.writes);
    if (lane.warp >= 4 && a.output != nullptr) {
      from_writes(tiles, out);
      write_out(a, first, out);
    }
    update_state(tiles, state);
    put_state(state, tiles);
  }
  store_last_state(a, state);
}

}  // namespace

void gated_delta_forward(const GatedDeltaShape& shape, Type type, const GatedDeltaForward& a, Stream stream) {
  require(shape.sequences >= 0 && shape.sequences <= 65535, "up to 65535 sequences");
  require(shape.time >= 0 && shape.time < (1 << 30), "0 <= time < 2^30");
  require(shape.key_dim > 0 && shape.key_dim <= 256, "keys of 1 to 256");
  require(shape.value_dim > 0 && shape.value_dim < (1 << 20), "values of 1 to 2^20");
  if (shape.sequences == 0) return;
  const bool aligned = begin_in_eights(type, a.query, a.key, a.value, a.output);
  const bool fits = gated_delta_goes_by_chunks(shape) && aligned;
  require(fits || (a.states == nullptr && a.writes == nullptr), "chunks where their states are asked for");
  const dim3 grid(static_cast<unsigned>(ceil_div(shape.value_dim, value_columns)),
                  static_cast<unsigned>(shape.sequences));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const Rule<T> rule = rule_of<T>(shape, a);
    if (fits) {
      if (shape.key_dim == 64) return launch(chunk_kernel<T, 64>, grid, threads, sizeof(Tiles<T, 64>), stream, rule);
      return launch(chunk_kernel<T, 128>, grid, threads, sizeof(Tiles<T, 128>), stream, rule);
    }
    launch(shape.key_dim <= 128 ? steps_kernel<T, 16> : steps_kernel<T, 32>, grid, threads, 0, stream, rule);
  });
}

}  // namespace plumb::kernels
