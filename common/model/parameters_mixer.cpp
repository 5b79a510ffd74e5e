#include "common/model/parameter_list.hpp"

namespace plumb {
namespace {

// Grouped-query attention, arXiv 2305.13245; output gate, arXiv 2505.06708; sinks, arXiv 2508.10925.
void add(ParameterList& list, const SoftmaxAttention& attention) {
  const std::int64_t hidden = list.hidden();
  const std::int64_t out = attention.heads * attention.value_dim;
  list.matmul("attention.q", attention.heads * attention.head_dim, hidden, attention.qkv_bias);
  list.matmul("attention.k", attention.kv_heads * attention.head_dim, hidden, attention.qkv_bias);
  list.matmul("attention.v", attention.kv_heads * attention.value_dim, hidden, attention.qkv_bias);
  if (attention.qk_norm) {
    list.vector("attention.q_norm.weight", {attention.head_dim});
    list.vector("attention.k_norm.weight", {attention.head_dim});
  }
  if (attention.sinks) list.vector("attention.sinks", {attention.heads});
  if (attention.output_gate) list.matmul("attention.gate", out, hidden);
  list.matmul("attention.out", hidden, out, attention.out_bias);
}

// DeepSeek-V2, arXiv 2405.04434, section 2.1.
void add(ParameterList& list, const LatentAttention& attention) {
  const std::int64_t hidden = list.hidden();
  const std::int64_t query = attention.heads * (attention.nope_dim + attention.rope_dim);
  if (attention.q_lora_rank) {
    list.matmul("attention.q_down", *attention.q_lora_rank, hidden);
    list.vector("attention.q_norm.weight", {*attention.q_lora_rank});
    list.matmul("attention.q_up", query, *attention.q_lora_rank);
  } else {
    list.matmul("attention.q", query, hidden);
  }
  list.matmul("attention.kv_down", attention.kv_lora_rank + attention.rope_dim, hidden);
  list.vector("attention.kv_norm.weight", {attention.kv_lora_rank});
  list.matmul("attention.kv_up", attention.heads * (attention.nope_dim + attention.value_dim), attention.kv_lora_rank);
  list.matmul("attention.out", hidden, attention.heads * attention.value_dim);
}

// Gated DeltaNet, arXiv 2412.06464, with the convolution over queries, keys and values in one.
void add(ParameterList& list, const GatedDelta& delta) {
  const std::int64_t hidden = list.hidden();
  const std::int64_t keys = delta.key_heads * delta.key_dim;
  const std::int64_t values = delta.value_heads * delta.value_dim;
  list.matmul("linear.q", keys, hidden);
  list.matmul("linear.k", keys, hidden);
  list.matmul("linear.v", values, hidden);
  list.matmul("linear.z", values, hidden);
  list.matmul("linear.beta", delta.value_heads, hidden);
  list.matmul("linear.decay", delta.value_heads, hidden);
  list.vector("linear.conv.weight", {2 * keys + values, delta.conv_kernel});
  list.vector("linear.a_log", {delta.value_heads});
  list.vector("linear.dt_bias", {delta.value_heads});
  list.vector("linear.norm.weight", {delta.value_dim});
  list.matmul("linear.out", hidden, values);
}

// Kimi Delta Attention, arXiv 2510.26692: the decay and the output gate are per channel, through a rank of head_dim.
void add(ParameterList& list, const ChannelGatedDelta& delta) {
  const std::int64_t hidden = list.hidden();
  const std::int64_t width = delta.heads * delta.head_dim;
  list.matmul("linear.q", width, hidden);
  list.matmul("linear.k", width, hidden);
  list.matmul("linear.v", width, hidden);
  list.matmul("linear.beta", delta.heads, hidden);
  list.matmul("linear.decay_down", delta.head_dim, hidden);
  list.matmul("linear.decay_up", width, delta.head_dim);
  list.matmul("linear.gate_down", delta.head_dim, hidden);
  list.matmul("linear.gate_up", width, delta.head_dim);
  list.vector("linear.conv.weight", {3 * width, delta.conv_kernel});
  list.vector("linear.a_log", {delta.heads});
  list.vector("linear.dt_bias", {width});
  list.vector("linear.norm.weight", {delta.head_dim});
  list.matmul("linear.out", hidden, width);
}

// MiniMax-01, arXiv 2501.08313: all heads have keys and values of their own.
void add(ParameterList& list, const Lightning& lightning) {
  const std::int64_t hidden = list.hidden();
  const std::int64_t width = lightning.heads * lightning.head_dim;
  for (const char* name : {"lightning.q", "lightning.k", "lightning.v", "lightning.gate"}) {
    list.matmul(name, width, hidden);
  }
  list.vector("lightning.norm.weight", {width});
  list.matmul("lightning.out", hidden, width);
}

// Mamba, arXiv 2312.00752, section 3; norms on dt, B and C: Jamba, arXiv 2403.19887.
void add(ParameterList& list, const Mamba& mamba) {
  const std::int64_t hidden = list.hidden();
  list.matmul("mamba.in", 2 * mamba.inner, hidden, mamba.proj_bias);
  list.vector("mamba.conv.weight", {mamba.inner, mamba.conv_kernel});
  if (mamba.conv_bias) list.vector("mamba.conv.bias", {mamba.inner});
  list.matmul("mamba.x", mamba.dt_rank + 2 * mamba.state, mamba.inner);
  if (mamba.inner_norms) {
    list.vector("mamba.dt_norm.weight", {mamba.dt_rank});
    list.vector("mamba.b_norm.weight", {mamba.state});
    list.vector("mamba.c_norm.weight", {mamba.state});
  }
  list.matmul("mamba.dt", mamba.inner, mamba.dt_rank, true);
  list.vector("mamba.a_log", {mamba.inner, mamba.state});
  list.vector("mamba.d", {mamba.inner});
  list.matmul("mamba.out", hidden, mamba.inner, mamba.proj_bias);
}

// Mamba-2, arXiv 2405.21060, section 7: gate, x, B, C and dt from one projection.
void add(ParameterList& list, const Mamba2& mamba) {
  const std::int64_t hidden = list.hidden();
  const std::int64_t inner = mamba.heads * mamba.head_dim;
  const std::int64_t convolved = inner + 2 * mamba.groups * mamba.state;
  list.matmul("mamba2.in", inner + convolved + mamba.heads, hidden);
  list.vector("mamba2.conv.weight", {convolved, mamba.conv_kernel});
  if (mamba.conv_bias) list.vector("mamba2.conv.bias", {convolved});
  list.vector("mamba2.a_log", {mamba.heads});
  list.vector("mamba2.d", {mamba.heads});
  list.vector("mamba2.dt_bias", {mamba.heads});
  list.vector("mamba2.norm.weight", {inner});
  list.matmul("mamba2.out", hidden, inner);
}

}  // namespace

void add_mixer(ParameterList& list, const Mixer& mixer) {
  std::visit([&](const auto& kind) { add(list, kind); }, mixer);
}

}  // namespace plumb
