#include "common/model/parameter_list.hpp"

namespace plumb {
namespace {

// Gated: arXiv 2002.05202 (GLU variants); otherwise two matrices.
void add(ParameterList& list, const DenseMlp& mlp) {
  const std::int64_t hidden = list.hidden();
  if (is_gated(mlp.activation)) list.matmul("mlp.gate", mlp.width, hidden, mlp.bias);
  list.matmul("mlp.up", mlp.width, hidden, mlp.bias);
  list.matmul("mlp.down", hidden, mlp.width, mlp.bias);
}

// Mixtral, arXiv 2401.04088; shared experts: DeepSeekMoE, arXiv 2401.06066.
void add(ParameterList& list, const MoeMlp& moe) {
  const std::int64_t hidden = list.hidden();
  const bool gated = is_gated(moe.activation);
  list.matmul("mlp.router", moe.experts, hidden, moe.router_bias);
  if (gated) list.experts("mlp.experts.gate", {moe.experts, moe.width, hidden}, moe.expert_bias);
  list.experts("mlp.experts.up", {moe.experts, moe.width, hidden}, moe.expert_bias);
  list.experts("mlp.experts.down", {moe.experts, hidden, moe.width}, moe.expert_bias);
  if (moe.shared_width == 0) return;
  if (gated) list.matmul("mlp.shared.gate", moe.shared_width, hidden);
  list.matmul("mlp.shared.up", moe.shared_width, hidden);
  list.matmul("mlp.shared.down", hidden, moe.shared_width);
  if (moe.shared_gate) list.matmul("mlp.shared_gate", 1, hidden);
}

}  // namespace

void add_mlp(ParameterList& list, const Mlp& mlp) {
  std::visit([&](const auto& kind) { add(list, kind); }, mlp);
}

// Two norms: before the mixer and before the MLP. Four (Gemma 2, arXiv 2408.00118): also after each of them.
void add_layer(ParameterList& list, const Layer& layer) {
  int next = 1;
  const auto add_norms = [&](int count) {
    for (; count > 0; --count) list.norm("norm_" + std::to_string(next++), layer.norm);
  };
  const int last = layer.norms == 4 ? 1 : 0;
  add_norms(1);
  add_mixer(list, layer.mixer);
  add_norms(layer.norms - 1 - last);
  add_mlp(list, layer.mlp);
  add_norms(last);
}

}  // namespace plumb
