// A chunk on its way into shared memory, and the state in registers: what both scans of the gated delta rule share.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"
#include "kernels/gated_delta/gated_delta_chunk.cuh"
#include "kernels/gated_delta/gated_delta_steps.cuh"

namespace plumb::kernels {
namespace {

// Whether eight elements can be moved at once.
template <class... Element>
bool begin_in_eights(Type type, Element*... arrays) {
  return type == Type::fp32 ? device::aligned_to<32>(arrays...) : device::aligned_to<16>(arrays...);
}

// What a thread has of the next chunk, on its way from memory.
template <class T, int Keys>
struct Ahead {
  static constexpr int packs = chunk * Keys / 8 / threads;
  device::Pack<T, 8> query[packs];
  device::Pack<T, 8> key[packs];
  device::Pack<T, 8> value;
  float pair[2];  // log_decay in warp 0, beta in warp 1
};

template <class T>
__device__ __forceinline__ void fetch_pair(const Rule<T>& a, std::int64_t sequence, int first, float (&pair)[2]) {
  const int thread = static_cast<int>(threadIdx.x);
  const float* const numbers = thread < device::warp_size ? a.log_decay : a.beta;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = thread % device::warp_size * 2 + i;
    pair[i] = thread < 2 * device::warp_size && first + at < a.time ? numbers[sequence * a.time + first + at] : 0.0F;
  }
}

template <class T, int Keys>
__device__ __forceinline__ void fetch(const Rule<T>& a, int first, Ahead<T, Keys>& ahead) {
  const std::int64_t step = static_cast<std::int64_t>(blockIdx.y) * a.time + first;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < Ahead<T, Keys>::packs; ++i) {
    const int row = (i * threads + thread) / (Keys / 8);
    const std::int64_t at = step * Keys + (i * threads + thread) * 8;
    ahead.query[i] = first + row < a.time ? device::load<8>(a.query + at) : device::Pack<T, 8>{};
    ahead.key[i] = first + row < a.time ? device::load<8>(a.key + at) : device::Pack<T, 8>{};
  }
  const int row = thread / (value_columns / 8);
  const int column = static_cast<int>(blockIdx.x) * value_columns + thread % (value_columns / 8) * 8;
  ahead.value =
      first + row < a.time ? device::load<8>(a.value + (step + row) * a.value_dim + column) : device::Pack<T, 8>{};
  fetch_pair(a, static_cast<std::int64_t>(blockIdx.y), first, ahead.pair);
}

// A sum and what fp32 does not hold of it (Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B).
struct LongSum {
  float high;
  float low;
};
__device__ __forceinline__ LongSum operator+(const LongSum& a, const LongSum& b) {
  const float high = a.high + b.high;
  const float from_b = high - a.high;
  return {high, (a.high - (high - from_b)) + (b.high - from_b) + a.low + b.low};
}

// From the chunk's log_decay in warp 0 and beta in warp 1, two steps a lane.
template <class Of>
__device__ __forceinline__ void put_decays(const float (&pair)[2], Of& tiles) {
  using namespace device;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < warp_size) {
    const auto of_lane = [](const LongSum& sum, int lane) {
      return LongSum{shuffle(sum.high, lane), shuffle(sum.low, lane)};
    };
    LongSum so_far = LongSum{pair[0], 0} + LongSum{pair[1], 0};
#pragma unroll
    for (int reach = 1; reach < warp_size; reach *= 2) {
      const LongSum before = of_lane(so_far, thread >= reach ? thread - reach : thread);
      if (thread >= reach) so_far = so_far + before;
    }
    LongSum before = of_lane(so_far, thread > 0 ? thread - 1 : 0);
    const LongSum last = of_lane(so_far, warp_size - 1);
    if (thread == 0) before = {0, 0};
    LongSum step = before;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      step = step + LongSum{pair[i], 0};
      const float grown = expf(step.high);
      tiles.decay[2 * thread + i] = step.high;
      tiles.rest[2 * thread + i] = step.low;
      tiles.grown[2 * thread + i] = grown + grown * step.low;
      tiles.left[2 * thread + i] = expf((last.high - step.high) + (last.low - step.low));
    }
  } else if (thread < 2 * warp_size) {
    tiles.beta[2 * thread - chunk] = pair[0];
    tiles.beta[2 * thread - chunk + 1] = pair[1];
  }
}

template <class T, int Keys>
__device__ __forceinline__ void put(const Ahead<T, Keys>& ahead, Tiles<T, Keys>& tiles) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < Ahead<T, Keys>::packs; ++i) {
    const int row = (i * threads + thread) / (Keys / 8);
    const int column = (i * threads + thread) % (Keys / 8) * 8;
    device::store(tiles.query + row * Tiles<T, Keys>::wide + column, ahead.query[i]);
    device::store(tiles.key + row * Tiles<T, Keys>::wide + column, ahead.key[i]);
  }
  device::store(tiles.value + thread / 4 * Tiles<T, Keys>::values + thread % 4 * 8, ahead.value);
  put_decays(ahead.pair, tiles);
}

// The warp's part of the state: 16 value columns, a quarter of the keys.
template <int Keys>
struct State {
  static constexpr int tiles = Keys / 32;
  float at[tiles][4];
};

// Calls f(number, its place in [sequences, key_dim, value_dim]) for what this lane has.
template <class T, int Keys, class F>
__device__ __forceinline__ void for_state(const Rule<T>& a, State<Keys>& state, const F& f) {
  const device::Lane lane;
  const std::int64_t states = static_cast<std::int64_t>(blockIdx.y) * Keys * a.value_dim + blockIdx.x * value_columns;
#pragma unroll
  for (int n = 0; n < State<Keys>::tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = lane.warp / 2 * (Keys / 4) + n * 8 + lane.quad * 2 + i % 2;
      const int column = lane.warp % 2 * 16 + lane.group + i / 2 * 8;
      f(state.at[n][i], states + static_cast<std::int64_t>(key) * a.value_dim + column);
    }
  }
}

template <class T, int Keys>
__device__ __forceinline__ void load_first_state(const Rule<T>& a, State<Keys>& state) {
  for_state(a, state,
            [&](float& number, std::int64_t at) { number = a.first_state != nullptr ? a.first_state[at] : 0.0F; });
}

template <class T, int Keys>
__device__ __forceinline__ void store_last_state(const Rule<T>& a, State<Keys>& state) {
  if (a.last_state == nullptr) return;
  for_state(a, state, [&](float& number, std::int64_t at) { a.last_state[at] = number; });
}

template <int Keys>
__device__ __forceinline__ void scale(State<Keys>& state, float factor) {
#pragma unroll
  for (int n = 0; n < State<Keys>::tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.at[n][i] *= factor;
  }
}

template <class T, int Keys>
__device__ __forceinline__ void put_state(const State<Keys>& state, Tiles<T, Keys>& tiles) {
  const device::Lane lane;
#pragma unroll
  for (int n = 0; n < State<Keys>::tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane.warp % 2 * 16 + lane.group + i * 8;
      const int column = lane.warp / 2 * (Keys / 4) + n * 8 + lane.quad * 2;
      put_pair(tiles.state + row * Tiles<T, Keys>::wide + column, state.at[n][2 * i], state.at[n][2 * i + 1]);
    }
  }
}

// [32 value columns, keys] of the block, as a chunk's operand, to [sequences, chunks, value_dim, key_dim].
template <class T, int Keys>
__device__ __forceinline__ void store_state(const Rule<T>& a, int first, const Tiles<T, Keys>& tiles, T* states) {
  const int chunks = (a.time + chunk - 1) / chunk;
  T* const to = states + ((static_cast<std::int64_t>(blockIdx.y) * chunks + first / chunk) * a.value_dim +
                          static_cast<std::int64_t>(blockIdx.x) * value_columns) *
                             Keys;
#pragma unroll
  for (int item = static_cast<int>(threadIdx.x); item < value_columns * Keys / 8; item += threads) {
    const int row = item / (Keys / 8);
    const int column = item % (Keys / 8) * 8;
    device::store(to + row * Keys + column, device::load<8>(tiles.state + row * Tiles<T, Keys>::wide + column));
  }
}

// A tile [value column, time] in rows of Tiles::narrow, to [sequences, time, value_dim].
template <class T>
__device__ __forceinline__ void store_turned(const Rule<T>& a, int first, const T* tile, T* to) {
  const int thread = static_cast<int>(threadIdx.x);
  const int time = thread / (value_columns / 8);
  const int column = thread % (value_columns / 8) * 8;
  if (first + time >= a.time) return;
  device::Pack<T, 8> pack;
#pragma unroll
  for (int i = 0; i < 8; ++i) pack.at[i] = tile[(column + i) * (chunk + 8) + time];
  device::store(to + (static_cast<std::int64_t>(blockIdx.y) * a.time + first + time) * a.value_dim +
                    static_cast<std::int64_t>(blockIdx.x) * value_columns + column,
                pack);
}

}  // namespace
}  // namespace plumb::kernels
