// Softmax attention: multi-head or grouped-query, full or in a sliding window.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"

namespace plumb::exec {
namespace {

// Radians that each pair turns per token.
at::Tensor frequencies(const Arithmetic& arithmetic, std::int64_t size) {
  const double theta = arithmetic.rope_theta.value_or(usual_rope_theta);
  const at::Tensor usual = at::exp(at::arange(0, size, 2, at::TensorOptions().dtype(at::kDouble)) *
                                   (-std::log(theta) / static_cast<double>(size)));
  if (!arithmetic.rope_scaling) return usual;
  const RopeScaling& scaling = *arithmetic.rope_scaling;
  const at::Tensor slow = usual / scaling.factor;
  if (!scaling.low_frequency) return slow;
  const double low = *scaling.low_frequency;
  const double high = *scaling.high_frequency;
  // 0 where the wave is longer than original_positions / low, 1 where it is shorter than original_positions / high.
  const at::Tensor turns = usual * (static_cast<double>(*scaling.original_positions) / (2 * M_PI));
  const at::Tensor share = high > low ? ((turns - low) / (high - low)).clamp(0, 1) : (turns > low).to(at::kDouble);
  return slow * (1 - share) + usual * share;
}

// Undefined: no rotation.
RotaryTables rope_tables(const ModuleContext& context, const SoftmaxAttention& attention) {
  if (context.model.positions != Positions::rope) {
    return {};
  }
  const Rotary rotary = attention.rotary.value_or(Rotary{.dim = attention.head_dim});
  const std::int64_t size = rotary.dim;
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor frequency = frequencies(context.model.arithmetic, size);
  const at::Tensor angle = at::outer(at::arange(context.sequence, wide), frequency);
  const auto type = wide_type(context.numerics.compute);
  const auto table = [&](const at::Tensor& values) { return values.to(type).to(context.numerics.device); };
  return {.cosine = table(angle.cos()), .sine = table(angle.sin()), .interleaved = rotary.interleaved};
}

// A slice carries on its last keys and values as far as a later slice can see them: all, or window − 1.
at::Tensor attend_to_slices(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            std::int64_t window, bool redone, const Pass& pass) {
  const std::int64_t tokens = key.size(1);
  const std::int64_t carried = std::min(tokens, window - 1);
  std::vector<at::Tensor> keys;
  std::vector<at::Tensor> values;
  for (std::size_t slice = 0; slice < pass.earlier.size(); ++slice) {
    const Carried& piece = pass.earlier[slice];
    const std::int64_t there = piece[0].size(1);
    const std::int64_t distance = pass.slice.first_token - pass.slice.ends[slice];
    const std::int64_t seen = std::min(there, window - 1 - distance);
    if (seen <= 0) continue;
    keys.push_back(piece[0].narrow(1, there - seen, seen));
    values.push_back(piece[1].narrow(1, there - seen, seen));
  }
  keys.push_back(key);
  values.push_back(value);
  if (pass.carried != nullptr) {
    *pass.carried = {key.narrow(1, tokens - carried, carried), value.narrow(1, tokens - carried, carried)};
  }
  return sliced_attention(query, keys, values, window, redone);
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
  const Module out = make_leaving_linear(context, "attention.out", hidden, width, attention.out_bias);
  const WeightPtr query_norm = attention.qk_norm ? weight_of(context, "attention.q_norm", {size}) : WeightPtr();
  const WeightPtr key_norm = attention.qk_norm ? weight_of(context, "attention.k_norm", {size}) : WeightPtr();
  const Module gate = attention.output_gate ? make_linear(context, "attention.gate", width, hidden) : Module();
  const RotaryTables rope = rope_tables(context, attention);
  const bool redone = context.redoes_attention;
  const std::int64_t window = std::min(attention.window.value_or(context.sequence), context.sequence);
  const Sight sight{.causal = attention.causal || window < context.sequence, .window = window};

  const double epsilon = norm_epsilon(context.model, NormKind::rmsnorm);

  const auto by_head = [size](const at::Tensor& x) { return x.view({x.size(0), x.size(1), -1, size}); };
  const auto prepared = [rope, by_head, epsilon](const at::Tensor& x, const WeightPtr& norm, const Pass& pass) {
    at::Tensor heads = by_head(x);
    if (norm) {
      heads = rms_norm(heads, norm, pass.queue, epsilon);
    }
    return rope.cosine.defined() ? rotate(heads, rope.narrowed(pass.slice.first_token, x.size(1))) : heads;
  };
  return [=](const at::Tensor& x, const Pass& pass) {
    const at::Tensor q = prepared(query(x, pass), query_norm, pass);
    const at::Tensor k = prepared(key(x, pass), key_norm, pass);
    const at::Tensor v = by_head(value(x, pass));
    at::Tensor y = pass.slice.count > 1 ? attend_to_slices(q, k, v, window, redone, pass)
                                        : softmax_attention(q, k, v, sight, redone);
    y = y.flatten(2);
    if (gate) {
      y = y * at::sigmoid(gate(x, pass));
    }
    return out(y, pass);
  };
}

}  // namespace plumb::exec
