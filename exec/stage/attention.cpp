// Softmax attention: multi-head or grouped-query, full or in a sliding window.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <optional>

#include "exec/stage/functions.hpp"
#include "exec/stage/module.hpp"
#include "exec/stage/operations.hpp"

namespace plumb::exec {
namespace {

constexpr double rope_base = 10000.0;  // arXiv 2104.09864, section 3.2.2

// Undefined: no rotation.
RotaryTables rope_tables(const ModuleContext& context, const SoftmaxAttention& attention) {
  if (context.model.positions != Positions::rope) {
    return {};
  }
  const Rotary rotary = attention.rotary.value_or(Rotary{.dim = attention.head_dim});
  const std::int64_t size = rotary.dim;
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor frequency =
      at::exp(at::arange(0, size, 2, wide) * (-std::log(rope_base) / static_cast<double>(size)));
  const at::Tensor angle = at::outer(at::arange(context.sequence, wide), frequency);
  const auto type = context.numerics.compute == at::kDouble ? at::kDouble : at::kFloat;
  return {.cosine = angle.cos().to(type), .sine = angle.sin().to(type), .interleaved = rotary.interleaved};
}

// 0 where a query sees the key, −∞ elsewhere: the `window` keys up to and including its own. None: all before it.
std::optional<at::Tensor> band_mask(const ModuleContext& context, const SoftmaxAttention& attention) {
  if (!attention.window || *attention.window >= context.sequence) {
    return std::nullopt;
  }
  const at::Tensor position = at::arange(context.sequence);
  const at::Tensor distance = position.unsqueeze(1) - position.unsqueeze(0);
  const at::Tensor hidden = distance.lt(0).logical_or_(distance.ge(*attention.window));
  return at::zeros({context.sequence, context.sequence}, at::TensorOptions().dtype(context.numerics.compute))
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

}  // namespace

Module make_softmax_attention(const ModuleContext& context, const SoftmaxAttention& attention) {
  const std::int64_t hidden = context.model.hidden;
  const std::int64_t size = attention.head_dim;
  const std::int64_t width = attention.heads * size;
  const std::int64_t kv_width = attention.kv_heads * size;
  const Module query = make_linear(context, "attention.q", width, hidden, attention.qkv_bias);
  const Module key = make_linear(context, "attention.k", kv_width, hidden, attention.qkv_bias);
  const Module value = make_linear(context, "attention.v", kv_width, hidden, attention.qkv_bias);
  const Module out = make_linear(context, "attention.out", hidden, width, attention.out_bias);
  const WeightPtr query_norm = attention.qk_norm ? weight_of(context, "attention.q_norm", {size}) : WeightPtr();
  const WeightPtr key_norm = attention.qk_norm ? weight_of(context, "attention.k_norm", {size}) : WeightPtr();
  const Module gate = attention.output_gate ? make_linear(context, "attention.gate", width, hidden) : Module();
  const RotaryTables rope = rope_tables(context, attention);
  const std::optional<at::Tensor> mask = band_mask(context, attention);
  const bool causal = attention.causal;

  const auto prepared = [rope, size](const at::Tensor& x, const WeightPtr& norm, const Pass& pass) {
    at::Tensor heads = x.view({x.size(0), x.size(1), -1, size});
    if (norm) {
      heads = rms_norm(heads, norm, pass.queue);
    }
    return rope.cosine.defined() ? rotate(heads, rope) : heads;
  };
  return [=](const at::Tensor& x, const Pass& pass) {
    const at::Tensor q = prepared(query(x, pass), query_norm, pass);
    const at::Tensor k = prepared(key(x, pass), key_norm, pass);
    const at::Tensor v = value(x, pass).view({x.size(0), x.size(1), -1, size});
    at::Tensor y = softmax_attention(q, k, v, mask, causal).reshape({x.size(0), x.size(1), -1});
    if (gate) {
      y = y * at::sigmoid(gate(x, pass));
    }
    return out(y, pass);
  };
}

}  // namespace plumb::exec
