// What one decoder layer is: a token mixer (attention or recurrence) and an MLP, described by shape alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace plumb {

// Rotary positions on the first `dim` elements of a head (arXiv 2104.09864): each pair that turns is either element i
// with i + dim/2, or, `interleaved`, two neighbours (GPT-J).
struct Rotary {
  std::int64_t dim = 0;
  bool interleaved = false;
  bool operator==(const Rotary&) const = default;
};

// Softmax attention: multi-head (kv_heads = heads), grouped-query, with or without a sliding window.
struct SoftmaxAttention {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;                // of queries and keys
  std::int64_t value_dim = 0;               // of values, per head
  std::optional<std::int64_t> window = {};  // keys that a query sees, itself included; none: all before it
  bool causal = true;                       // false: bidirectional (ViT)
  bool qkv_bias = false;
  bool out_bias = false;
  bool qk_norm = false;               // RMSNorm over head_dim on queries and keys, weights shared by the heads
  bool output_gate = false;           // the query projection doubles (Qwen3-Next)
  bool sinks = false;                 // one learned logit per head (GPT-OSS)
  std::optional<Rotary> rotary = {};  // none: the whole head, halves
  bool operator==(const SoftmaxAttention&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).
struct LatentAttention {
  std::int64_t heads = 0;
  std::optional<std::int64_t> q_lora_rank = {};
  std::int64_t kv_lora_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

// Gated delta rule (Gated DeltaNet, arXiv 2412.06464) in Qwen3-Next's form; `linear` in a model block.
struct GatedDelta {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t conv_kernel = 4;
  std::int64_t chunk = 64;
  bool operator==(const GatedDelta&) const = default;
};

// Gated delta rule with a gate per channel (Kimi Delta Attention).
struct ChannelGatedDelta {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t conv_kernel = 4;
  std::int64_t chunk = 64;
  bool operator==(const ChannelGatedDelta&) const = default;
};

// Lightning attention (MiniMax-01, arXiv 2501.08313).
struct Lightning {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t block = 256;
  bool operator==(const Lightning&) const = default;
};

// Mamba-1 selective scan (arXiv 2312.00752).
struct Mamba {
  std::int64_t inner = 0;
  std::int64_t state = 0;
  std::int64_t dt_rank = 0;
  std::int64_t conv_kernel = 4;
  bool conv_bias = true;
  bool proj_bias = false;
  bool inner_norms = false;  // norms on dt, B and C (Jamba)
  bool operator==(const Mamba&) const = default;
};

// Mamba-2 state-space duality (arXiv 2405.21060).
struct Mamba2 {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t groups = 1;
  std::int64_t state = 0;
  std::int64_t conv_kernel = 4;
  std::int64_t chunk = 256;
  bool conv_bias = true;
  bool operator==(const Mamba2&) const = default;
};

// std::monostate: the layer has no mixer.
using Mixer = std::variant<std::monostate, SoftmaxAttention, LatentAttention, GatedDelta, ChannelGatedDelta, Lightning,
                           Mamba, Mamba2>;

// GELU (arXiv 1606.08415) in its tanh form, as GPT-2 and GPT-J have it; gelu_erf is the exact one (ViT).
enum class Activation : std::uint8_t { gelu, relu2, swiglu, geglu, gelu_erf };

// The gated ones have three matrices, the others two.
[[nodiscard]] constexpr bool is_gated(Activation activation) {
  return activation == Activation::swiglu || activation == Activation::geglu;
}

struct DenseMlp {
  std::int64_t width = 0;
  Activation activation = Activation::swiglu;
  bool bias = false;
  bool operator==(const DenseMlp&) const = default;
};

// Mixture of experts: a router, `experts` gated MLPs of which `top_k` see a token, and shared experts that see all.
struct MoeMlp {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t width = 0;         // of one expert
  std::int64_t shared_width = 0;  // of all shared experts together; 0: none
  bool shared_gate = false;       // a sigmoid gate on the shared expert (Qwen3-Next)
  bool router_bias = false;
  bool expert_bias = false;
  Activation activation = Activation::swiglu;
  bool operator==(const MoeMlp&) const = default;
};

// std::monostate: the layer has no MLP.
using Mlp = std::variant<std::monostate, DenseMlp, MoeMlp>;

enum class NormKind : std::uint8_t { rmsnorm, layernorm };

struct Layer {
  Mixer mixer = {};
  Mlp mlp = {};
  NormKind norm = NormKind::rmsnorm;
  int norms = 2;          // over hidden: usually one before the mixer and one before the MLP; Gemma 3 four, GPT-J one
  bool parallel = false;  // mixer and MLP read the same norm (GPT-J)
  bool operator==(const Layer&) const = default;
};

// "linear/dense", "full/moe", "none/moe": as written in a model block's `layers`.
// A sliding window is part of the kind's name, its size is not.
[[nodiscard]] std::string kind_name(const Layer& layer);

}  // namespace plumb
