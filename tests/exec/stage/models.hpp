// Small models of every executed kind, for tests.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/model/model.hpp"

namespace plumb::exec::test {

inline SoftmaxAttention attention(std::int64_t heads, std::int64_t kv_heads, std::int64_t size) {
  return {.heads = heads, .kv_heads = kv_heads, .head_dim = size, .value_dim = size};
}

inline SoftmaxAttention sliding(std::int64_t window) {
  SoftmaxAttention made = attention(4, 2, 8);
  made.window = window;
  made.qk_norm = true;
  return made;
}

inline Layer layer(Mixer mixer, Mlp mlp, NormKind norm = NormKind::rmsnorm) {
  return {.mixer = std::move(mixer), .mlp = std::move(mlp), .norm = norm};
}

inline const DenseMlp swiglu_mlp{.width = 48, .activation = Activation::swiglu};
inline const MoeMlp experts{.experts = 4, .top_k = 2, .width = 24};
inline const MoeMlp shared_experts{.experts = 4, .top_k = 2, .width = 24, .shared_width = 16, .shared_gate = true};
inline const GatedDelta delta{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 8, .chunk = 64};

inline Model model(std::string name, std::vector<Layer> layers) {
  return {.name = std::move(name), .vocabulary = 256, .hidden = 32, .layers = std::move(layers)};
}

inline Model llama(int layers) {
  return model("llama", std::vector<Layer>(static_cast<std::size_t>(layers), layer(attention(4, 2, 8), swiglu_mlp)));
}

inline Model mixtral(int layers) {
  return model("mixtral", std::vector<Layer>(static_cast<std::size_t>(layers), layer(attention(4, 2, 8), experts)));
}

// GPT-2: biases, LayerNorm, learned positions, tied; minGPT is the same untied.
inline Model gpt2(int layers, bool tied) {
  SoftmaxAttention biased = attention(4, 4, 8);
  biased.qkv_bias = biased.out_bias = true;
  const DenseMlp gelu{.width = 64, .activation = Activation::gelu, .bias = true};
  Model made = model(tied ? "gpt2" : "mingpt",
                     std::vector<Layer>(static_cast<std::size_t>(layers), layer(biased, gelu, NormKind::layernorm)));
  made.final_norm = NormKind::layernorm;
  made.positions = Positions::learned;
  made.max_positions = 128;
  made.tied_embeddings = tied;
  return made;
}

// GPT-J: one norm for attention and MLP, a part of each head rotated in pairs of neighbours, a head with a bias.
inline Model gptj(int layers) {
  SoftmaxAttention rotated = attention(4, 4, 8);
  rotated.rotary = Rotary{.dim = 4, .interleaved = true};
  const DenseMlp gelu{.width = 64, .activation = Activation::gelu, .bias = true};
  Layer parallel = layer(rotated, gelu, NormKind::layernorm);
  parallel.norms = 1;
  parallel.parallel = true;
  Model made = model("gptj", std::vector<Layer>(static_cast<std::size_t>(layers), parallel));
  made.final_norm = NormKind::layernorm;
  made.head_bias = true;
  return made;
}

// ViT: 16 patches and a class token, attention both ways, 10 classes.
inline Model vit(int layers) {
  SoftmaxAttention both_ways = attention(4, 4, 8);
  both_ways.causal = false;
  both_ways.qkv_bias = both_ways.out_bias = true;
  const DenseMlp gelu{.width = 64, .activation = Activation::gelu_erf, .bias = true};
  Model made =
      model("vit", std::vector<Layer>(static_cast<std::size_t>(layers), layer(both_ways, gelu, NormKind::layernorm)));
  made.final_norm = NormKind::layernorm;
  made.positions = Positions::learned;
  made.vocabulary = 0;
  made.vision = Vision{.image_size = 16, .patch_size = 4, .channels = 3, .classes = 10};
  made.max_positions = tokens(*made.vision);
  made.head_bias = true;
  return made;
}

// Linear, sliding and full attention, dense and mixtures of experts.
inline Model hybrid() {
  return model("hybrid", {layer(delta, swiglu_mlp), layer(sliding(16), shared_experts), layer(delta, experts),
                          layer(attention(4, 2, 8), swiglu_mlp)});
}

// Four key-value heads, so that four ranks can share them out.
inline Model of_four(Model model) {
  for (Layer& layer : model.layers) {
    if (auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer)) attention->kv_heads = 4;
    if (auto* linear = std::get_if<GatedDelta>(&layer.mixer)) linear->key_heads = 4;
  }
  return model;
}

// Of so many layers; the hybrid of its four, one of each kind.
using Family = Model (*)(int layers);
inline constexpr std::array<Family, 4> families{[](int layers) { return gpt2(layers, true); }, llama, mixtral,
                                                [](int /*layers*/) { return hybrid(); }};

// As few as two stages can have, or four chunks of interleaved ones; layers behind each other need no more.
inline int fewest_layers(const std::string& schedule) { return schedule == "interleaved-1f1b" ? 4 : 2; }

}  // namespace plumb::exec::test
