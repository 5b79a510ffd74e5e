// The gated delta rule step by step, in fp32 for every type and size.
#pragma once

#include <cstdint>

#include "kernels/device/device.cuh"
#include "kernels/gated_delta/gated_delta.hpp"

namespace plumb::kernels {
namespace {

constexpr int threads = 256;
constexpr int value_columns = 32;  // of a block

template <class T>
struct Rule {
  const T* query;
  const T* key;
  const T* value;
  const float* beta;
  const float* log_decay;
  const float* first_state;
  T* output;
  float* last_state;
  T* states;  // by chunks only; or none
  T* writes;
  int time;
  int key_dim;
  int value_dim;
};

template <class T>
Rule<T> rule_of(const GatedDeltaShape& shape, const GatedDeltaForward& a) {
  return {.query = static_cast<const T*>(a.query),
          .key = static_cast<const T*>(a.key),
          .value = static_cast<const T*>(a.value),
          .beta = a.beta,
          .log_decay = a.log_decay,
          .first_state = a.first_state,
          .output = static_cast<T*>(a.output),
          .last_state = a.last_state,
          .states = static_cast<T*>(a.states),
          .writes = static_cast<T*>(a.writes),
          .time = static_cast<int>(shape.time),
          .key_dim = static_cast<int>(shape.key_dim),
          .value_dim = static_cast<int>(shape.value_dim)};
}

// Eight neighbouring lanes have a column of the state, each every eighth row of it.
template <class T, int Rows>
__global__ void __launch_bounds__(threads) steps_kernel(const __grid_constant__ Rule<T> a) {
  using namespace device;
  const int part = static_cast<int>(threadIdx.x) % 8;
  const int column = static_cast<int>(blockIdx.x * value_columns + threadIdx.x / 8);
  const bool there = column < a.value_dim;
  const std::int64_t sequence = blockIdx.y;
  const std::int64_t states = sequence * a.key_dim * a.value_dim + column;
  float state[Rows];
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    const int row = i * 8 + part;
    const bool held = there && row < a.key_dim && a.first_state != nullptr;
    state[i] = held ? a.first_state[states + static_cast<std::int64_t>(row) * a.value_dim] : 0.0F;
  }
  for (int time = 0; time < a.time; ++time) {
    const std::int64_t step = sequence * a.time + time;
    const float decay = expf(a.log_decay[step]);
    float key[Rows];
    float recalled = 0;
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      const int row = i * 8 + part;
      key[i] = row < a.key_dim ? to_float(a.key[step * a.key_dim + row]) : 0.0F;
      state[i] *= decay;
      recalled += state[i] * key[i];
    }
    for (int mask = 4; mask > 0; mask /= 2) recalled += shuffle_xor(recalled, mask);
    const float value = there ? to_float(a.value[step * a.value_dim + column]) : 0.0F;
    const float write = a.beta[step] * (value - recalled);
    float read = 0;
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      const int row = i * 8 + part;
      state[i] += key[i] * write;
      if (row < a.key_dim) read += state[i] * to_float(a.query[step * a.key_dim + row]);
    }
    for (int mask = 4; mask > 0; mask /= 2) read += shuffle_xor(read, mask);
    if (there && part == 0) a.output[step * a.value_dim + column] = from_float<T>(read);
  }
  if (a.last_state == nullptr || !there) return;
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    const int row = i * 8 + part;
    if (row < a.key_dim) a.last_state[states + static_cast<std::int64_t>(row) * a.value_dim] = state[i];
  }
}

}  // namespace
}  // namespace plumb::kernels
