#include "common/model/recurrent_state.hpp"

namespace plumb {
namespace {

RecurrentState state_of(const std::monostate&) { return {}; }
RecurrentState state_of(const SoftmaxAttention&) { return {}; }
RecurrentState state_of(const LatentAttention&) { return {}; }

// S of arXiv 2412.06464, keys × values per head.
RecurrentState state_of(const GatedDelta& delta) {
  return {.elements = delta.value_heads * delta.key_dim * delta.value_dim,
          .channels = 2 * delta.key_heads * delta.key_dim + delta.value_heads * delta.value_dim,
          .tokens = delta.conv_kernel - 1};
}

RecurrentState state_of(const ChannelGatedDelta& delta) {
  return {.elements = delta.heads * delta.head_dim * delta.head_dim,
          .channels = 3 * delta.heads * delta.head_dim,
          .tokens = delta.conv_kernel - 1};
}

// KV of arXiv 2401.04658, algorithm 1.
RecurrentState state_of(const Lightning& lightning) {
  return {.elements = lightning.heads * lightning.head_dim * lightning.head_dim};
}

RecurrentState state_of(const Mamba& mamba) {
  return {.elements = mamba.inner * mamba.state, .channels = mamba.inner, .tokens = mamba.conv_kernel - 1};
}

RecurrentState state_of(const Mamba2& mamba) {
  return {.elements = mamba.heads * mamba.head_dim * mamba.state,
          .channels = mamba.heads * mamba.head_dim + 2 * mamba.groups * mamba.state,
          .tokens = mamba.conv_kernel - 1};
}

}  // namespace

RecurrentState recurrent_state(const Mixer& mixer) {
  return std::visit([](const auto& kind) { return state_of(kind); }, mixer);
}

}  // namespace plumb
