// Models that tests of all layouts go through: those of tests/data/models, and one of the kinds that none of these has.
#pragma once

#include <algorithm>
#include <filesystem>
#include <variant>
#include <vector>

#include "common/layout/layout.hpp"
#include "common/model/files/read_model.hpp"

namespace plumb::testing {

inline std::vector<Model> models() {
  std::vector<Model> all;
  const auto folder = std::filesystem::path(PLUMB_SOURCE_DIR) / "tests/data/models";
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().ends_with(".config.json")) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  for (const auto& path : paths) all.push_back(read_model(path));
  Model recurrent{.name = "recurrent", .vocabulary = 96, .hidden = 64};
  const DenseMlp mlp{.width = 128, .activation = Activation::gelu, .bias = true};
  recurrent.layers = {
      {.mixer = Mamba{.inner = 128, .state = 16, .dt_rank = 8, .inner_norms = true}, .mlp = mlp},
      {.mixer = Mamba{.inner = 128, .state = 16, .dt_rank = 8, .proj_bias = true}, .mlp = mlp},
      {.mixer = Mamba2{.heads = 8, .head_dim = 16, .groups = 8, .state = 16}, .norms = 1},
      {.mixer = ChannelGatedDelta{.heads = 4, .head_dim = 16}, .mlp = mlp},
      {.mixer = Lightning{.heads = 4, .head_dim = 16}, .mlp = mlp},
      {.mixer = SoftmaxAttention{.heads = 8,
                                 .kv_heads = 4,
                                 .head_dim = 8,
                                 .value_dim = 8,
                                 .qkv_bias = true,
                                 .qk_norm = true,
                                 .output_gate = true,
                                 .sinks = true},
       .mlp = MoeMlp{.experts = 4, .top_k = 2, .width = 32, .shared_width = 32, .shared_gate = true}},
  };
  all.push_back(recurrent);
  return all;
}

// Those whose shapes four to eight tensor-parallel ranks divide.
inline std::vector<Model> models_divided_by(const TensorLayout& tensor) {
  std::vector<Model> all;
  for (Model& model : models()) {
    if (model.vision && tensor.sequence_parallel) continue;   // 197 tokens
    if (model.name == "mingpt-gpt-mini") continue;            // six heads
    if (model.name.starts_with("small-")) continue;           // two heads of keys
    if (model.vocabulary == 50257) model.vocabulary = 50304;  // padded, as Megatron-LM does
    if (model.name == "qwen3-next-80b-a3b") {                 // two heads of keys
      for (Layer& layer : model.layers) {
        if (auto* const attention = std::get_if<SoftmaxAttention>(&layer.mixer)) attention->kv_heads = 4;
      }
    }
    all.push_back(std::move(model));
  }
  return all;
}

// Of each kind that has a table.
inline std::vector<TensorLayout> tensor_layouts() {
  return {
      {.degree = 4},
      {.degree = 4, .sequence_parallel = true},
      {.degree = 4, .kind = TensorKind::two_d},
      {.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2},
      {.degree = 8, .kind = TensorKind::three_d},
      {.degree = 8, .kind = TensorKind::three_d, .reshard_after_forward = true},
  };
}

// Mamba's B and C, and the key that all heads of latent attention share, are read where neither of the matmuls before
// and behind stands in 3d.
inline bool has_place(const TensorLayout& tensor, const Model& model, std::size_t block) {
  const bool is_layer = block >= 1 && block <= model.layers.size();
  if (tensor.kind != TensorKind::three_d || (!is_layer && (block == 0 || model.mtp_modules == 0))) return true;
  const Mixer& mixer = is_layer ? model.layers[block - 1].mixer : model.layers.back().mixer;
  return !std::holds_alternative<Mamba>(mixer) && !std::holds_alternative<LatentAttention>(mixer);
}

// A layer like one before it.
inline bool is_repeated(const Model& model, std::size_t block) {
  if (block == 0 || block > model.layers.size()) return false;
  const auto here = model.layers.begin() + static_cast<std::ptrdiff_t>(block) - 1;
  return std::find(model.layers.begin(), here, *here) != here;
}

}  // namespace plumb::testing
