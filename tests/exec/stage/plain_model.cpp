#include "tests/exec/stage/plain_model.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec::plain {
namespace {

struct Scope {
  const Parameters& parameters;
  std::string prefix;

  [[nodiscard]] at::Tensor operator()(const std::string& name) const { return parameters.at(prefix + name); }
  [[nodiscard]] at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const auto bias = parameters.find(prefix + name + ".bias");
    const at::Tensor y = at::matmul(x, (*this)(name + ".weight").t());
    return bias == parameters.end() ? y : y + bias->second;
  }
};

at::Tensor rms(const at::Tensor& x, const at::Tensor& weight) {
  return x / at::sqrt(x.square().mean(-1, true) + 1e-6) * weight;
}

at::Tensor norm(const Scope& scope, const std::string& name, NormKind kind, const at::Tensor& x) {
  if (kind == NormKind::rmsnorm) {
    return rms(x, scope(name + ".weight"));
  }
  const at::Tensor centred = x - x.mean(-1, true);
  return centred / at::sqrt(centred.square().mean(-1, true) + 1e-5) * scope(name + ".weight") + scope(name + ".bias");
}

// [batch, time, heads, size]: the first `dim` elements as complex numbers (first half + i · second half; interleaved,
// even + i · odd) times exp(i · angle).
at::Tensor rope(const at::Tensor& x, const Rotary& rotary) {
  const std::int64_t half = rotary.dim / 2;
  const at::Tensor frequency = at::pow(10000.0, at::arange(half, at::kDouble) * (-1.0 / static_cast<double>(half)));
  const at::Tensor angle = at::outer(at::arange(x.size(1), at::kDouble), frequency).to(x.scalar_type()).unsqueeze(1);
  const at::Tensor turning = x.slice(3, 0, rotary.dim);
  const at::Tensor rest = x.slice(3, rotary.dim);
  const at::Tensor pairs =
      rotary.interleaved ? turning.unflatten(3, {half, 2}) : turning.unflatten(3, {2, half}).transpose(3, 4);
  const at::Tensor a = pairs.select(4, 0);
  const at::Tensor b = pairs.select(4, 1);
  const at::Tensor turned = at::stack({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, 4);
  return at::cat({(rotary.interleaved ? turned : turned.transpose(3, 4)).flatten(3), rest}, 3);
}

at::Tensor attention(const Model& model, const SoftmaxAttention& shape, const Scope& scope, const at::Tensor& x) {
  const std::int64_t time = x.size(1);
  const auto split = [&](const std::string& name, std::int64_t heads) {
    return scope.linear("attention." + name, x).reshape({x.size(0), time, heads, shape.head_dim});
  };
  at::Tensor q = split("q", shape.heads);
  at::Tensor k = split("k", shape.kv_heads);
  at::Tensor v = split("v", shape.kv_heads);
  if (shape.qk_norm) {
    q = rms(q, scope("attention.q_norm.weight"));
    k = rms(k, scope("attention.k_norm.weight"));
  }
  if (model.positions == Positions::rope) {
    const Rotary rotary = shape.rotary.value_or(Rotary{.dim = shape.head_dim});
    q = rope(q, rotary);
    k = rope(k, rotary);
  }
  std::vector<at::Tensor> outputs;
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    const std::int64_t source = head / (shape.heads / shape.kv_heads);
    const at::Tensor score = at::matmul(q.select(2, head), k.select(2, source).transpose(1, 2)) /
                             std::sqrt(static_cast<double>(shape.head_dim));
    at::Tensor seen = at::ones({time, time}, at::kBool);
    if (shape.causal) {
      seen = seen.tril();
    }
    if (shape.window) {
      seen = seen.triu(1 - *shape.window);
    }
    const at::Tensor hidden = seen.logical_not();
    outputs.push_back(at::matmul(score.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1),
                                 v.select(2, source)));
  }
  at::Tensor y = at::cat(outputs, -1);
  if (shape.output_gate) {
    y = y * at::sigmoid(scope.linear("attention.gate", x));
  }
  return scope.linear("attention.out", y);
}

at::Tensor unit(const at::Tensor& x) { return x / at::sqrt(x.square().sum(-1, true) + 1e-6); }

at::Tensor gated_delta(const GatedDelta& shape, const Scope& scope, const at::Tensor& x) {
  const std::int64_t batch = x.size(0);
  const std::int64_t time = x.size(1);
  const std::int64_t keys = shape.key_heads * shape.key_dim;
  const at::Tensor qkv =
      at::cat({scope.linear("linear.q", x), scope.linear("linear.k", x), scope.linear("linear.v", x)}, -1);
  const at::Tensor padded = at::cat({at::zeros({batch, shape.conv_kernel - 1, qkv.size(2)}, qkv.options()), qkv}, 1);
  std::vector<at::Tensor> steps;
  const at::Tensor taps = scope("linear.conv.weight").t();  // [kernel, channels]
  for (std::int64_t t = 0; t < time; ++t) {
    steps.push_back((padded.slice(1, t, t + shape.conv_kernel) * taps).sum(1));
  }
  const at::Tensor mixed = at::silu(at::stack(steps, 1));
  const at::Tensor q = unit(mixed.slice(2, 0, keys).reshape({batch, time, shape.key_heads, shape.key_dim})) /
                       std::sqrt(static_cast<double>(shape.key_dim));
  const at::Tensor k = unit(mixed.slice(2, keys, 2 * keys).reshape({batch, time, shape.key_heads, shape.key_dim}));
  const at::Tensor v = mixed.slice(2, 2 * keys).reshape({batch, time, shape.value_heads, shape.value_dim});
  const at::Tensor beta = at::sigmoid(scope.linear("linear.beta", x));
  const at::Tensor decay = at::exp(-at::exp(scope("linear.a_log")) *
                                   at::softplus(scope.linear("linear.decay", x) + scope("linear.dt_bias")));
  const std::int64_t repeats = shape.value_heads / shape.key_heads;
  at::Tensor state = at::zeros({batch, shape.value_heads, shape.key_dim, shape.value_dim}, x.options());
  std::vector<at::Tensor> outputs;
  for (std::int64_t t = 0; t < time; ++t) {
    const at::Tensor query = q.select(1, t).repeat_interleave(repeats, 1).unsqueeze(2);  // [batch, heads, 1, dk]
    const at::Tensor key = k.select(1, t).repeat_interleave(repeats, 1).unsqueeze(2);
    state = state * decay.select(1, t).unsqueeze(-1).unsqueeze(-1);
    const at::Tensor error = v.select(1, t).unsqueeze(2) - at::matmul(key, state);
    state = state + at::matmul(key.transpose(2, 3), error * beta.select(1, t).unsqueeze(-1).unsqueeze(-1));
    outputs.push_back(at::matmul(query, state).squeeze(2));
  }
  const at::Tensor y = rms(at::stack(outputs, 1), scope("linear.norm.weight"));
  const at::Tensor z = scope.linear("linear.z", x).reshape(y.sizes());
  return scope.linear("linear.out", (y * at::silu(z)).reshape({batch, time, -1}));
}

at::Tensor gated_mlp(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& down) {
  return at::matmul(at::silu(at::matmul(x, gate.t())) * at::matmul(x, up.t()), down.t());
}

at::Tensor moe(const MoeMlp& shape, const Scope& scope, const at::Tensor& x) {
  const at::Tensor probability = scope.linear("mlp.router", x).softmax(-1);
  const at::Tensor least = std::get<0>(probability.topk(shape.top_k, -1)).select(-1, shape.top_k - 1).unsqueeze(-1);
  const at::Tensor chosen = probability * probability.ge(least);
  const at::Tensor share = chosen / chosen.sum(-1, true);
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    y = y + share.select(-1, expert).unsqueeze(-1) * gated_mlp(x, scope("mlp.experts.gate.weight").select(0, expert),
                                                               scope("mlp.experts.up.weight").select(0, expert),
                                                               scope("mlp.experts.down.weight").select(0, expert));
  }
  if (shape.shared_width > 0) {
    const at::Tensor shared =
        gated_mlp(x, scope("mlp.shared.gate.weight"), scope("mlp.shared.up.weight"), scope("mlp.shared.down.weight"));
    y = y + (shape.shared_gate ? shared * at::sigmoid(scope.linear("mlp.shared_gate", x)) : shared);
  }
  return y;
}

at::Tensor mlp(const Mlp& kind, const Scope& scope, const at::Tensor& x) {
  if (const auto* experts = std::get_if<MoeMlp>(&kind)) {
    return moe(*experts, scope, x);
  }
  const auto& dense = std::get<DenseMlp>(kind);
  const at::Tensor up = scope.linear("mlp.up", x);
  if (dense.activation == Activation::swiglu) {
    return scope.linear("mlp.down", at::silu(scope.linear("mlp.gate", x)) * up);
  }
  if (dense.activation == Activation::gelu_erf) {
    return scope.linear("mlp.down", 0.5 * up * (1 + at::erf(up / std::sqrt(2.0))));
  }
  const at::Tensor inner = std::sqrt(2.0 / M_PI) * (up + 0.044715 * up.pow(3));
  return scope.linear("mlp.down", 0.5 * up * (1 + at::tanh(inner)));
}

}  // namespace

Parameters draw(const Model& model, std::uint64_t seed, at::ScalarType type) {
  std::vector<Parameter> list = embedding_parameters(model);
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    for (Parameter& parameter : layer_parameters(model, index)) {
      list.push_back(std::move(parameter));
    }
  }
  for (const auto& more : {final_norm_parameters(model), head_parameters(model)}) {
    list.insert(list.end(), more.begin(), more.end());
  }
  Parameters drawn;
  for (const Parameter& parameter : list) {
    drawn[parameter.name] = initial_value(parameter, seed).to(type).requires_grad_();
  }
  return drawn;
}

at::Tensor layer(const Model& model, std::size_t index, const Parameters& parameters, const at::Tensor& x) {
  const Layer& shape = model.layers[index];
  const Scope scope{.parameters = parameters, .prefix = "layers." + std::to_string(index) + "."};
  const at::Tensor before = norm(scope, "norm_1", shape.norm, x);
  at::Tensor y = x;
  if (const auto* softmax = std::get_if<SoftmaxAttention>(&shape.mixer)) {
    y = x + attention(model, *softmax, scope, before);
  } else if (const auto* delta = std::get_if<GatedDelta>(&shape.mixer)) {
    y = x + gated_delta(*delta, scope, before);
  }
  return y + mlp(shape.mlp, scope, shape.parallel ? before : norm(scope, "norm_2", shape.norm, y));
}

static at::Tensor embedding_of_images(const Vision& vision, const Scope& scope, const at::Tensor& images) {
  const std::int64_t patch = vision.patch_size;
  const at::Tensor kernel = scope("embedding.patches.weight").reshape({-1, vision.channels, patch, patch});
  const at::Tensor grid = at::conv2d(images, kernel, scope("embedding.patches.bias"), patch);
  const at::Tensor class_token = scope("embedding.class_token").expand({images.size(0), 1, -1});
  return at::cat({class_token, grid.flatten(2).transpose(1, 2)}, 1) + scope("embedding.positions");
}

static at::Tensor embedding_of_tokens(const Model& model, const Scope& scope, const at::Tensor& tokens) {
  const at::Tensor x = scope("embedding.weight").index({tokens});
  const bool learned = model.positions == Positions::learned;
  return learned ? x + scope("embedding.positions").slice(0, 0, tokens.size(1)) : x;
}

at::Tensor loss(const Model& model, const Parameters& parameters, const at::Tensor& inputs, const at::Tensor& targets) {
  const Scope scope{.parameters = parameters, .prefix = ""};
  at::Tensor x =
      model.vision ? embedding_of_images(*model.vision, scope, inputs) : embedding_of_tokens(model, scope, inputs);
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    x = layer(model, index, parameters, x);
  }
  x = norm(scope, "final_norm", model.final_norm, x);
  if (model.vision) {
    x = x.slice(1, 0, 1);
  }
  const at::Tensor table = scope(model.tied_embeddings ? "embedding.weight" : "head.weight");
  at::Tensor logits = at::matmul(x, table.t()).flatten(0, 1);
  if (model.head_bias) {
    logits = logits + scope("head.bias");
  }
  const at::Tensor chosen = logits.gather(1, targets.reshape({-1, 1})).squeeze(1);
  return (logits.logsumexp(1) - chosen).mean();
}

}  // namespace plumb::exec::plain
