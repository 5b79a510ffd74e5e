// The gated delta rule in chunks (Gated DeltaNet, arXiv 2412.06464; WY form over a chunk: arXiv 2406.06484, section 3).
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

#include "exec/stage/functions.hpp"
#include "exec/stage/module.hpp"
#include "exec/stage/operations.hpp"

namespace plumb::exec {
namespace {

constexpr double l2_epsilon = 1e-6;

at::Tensor l2_normalised(const at::Tensor& x) { return x * (x.square().sum(-1, true) + l2_epsilon).rsqrt(); }

// All per head: query, key [batch, heads, time, dk], value [batch, heads, time, dv], beta and the log of the decay
// [batch, heads, time]. Recurrence: S ← S·exp(g_t); S ← S + k_t (beta_t (v_t − Sᵀ k_t))ᵀ; o_t = Sᵀ q_t.
struct DeltaInput {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor beta;
  at::Tensor log_decay;
};

// [batch, heads, time, …] to [batch, heads, chunks, chunk, …]; a padded step has beta 0 and decay 1: it changes
// nothing.
at::Tensor chunked(const at::Tensor& x, std::int64_t chunk) {
  const std::int64_t time = x.size(2);
  const std::int64_t chunks = (time + chunk - 1) / chunk;
  at::Tensor padded = x;
  if (chunks * chunk != time) {
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape[2] = chunks * chunk - time;
    padded = at::cat({x, at::zeros(shape, x.options())}, 2);
  }
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape[2] = chunks;
  shape.insert(shape.begin() + 3, chunk);
  return padded.reshape(shape);
}

at::Tensor delta_rule(const DeltaInput& input, std::int64_t chunk) {
  const std::int64_t time = input.query.size(2);
  const at::Tensor query = chunked(input.query, chunk);
  const at::Tensor key = chunked(input.key, chunk);
  const at::Tensor beta = chunked(input.beta, chunk).unsqueeze(-1);
  const at::Tensor decay = chunked(input.log_decay, chunk).cumsum(-1);  // log, since the chunk's start
  const at::Tensor grown = decay.exp().unsqueeze(-1);

  // within[i, j] = exp(decay_i − decay_j) for j ≤ i, else 0.
  const at::Tensor future = at::ones({chunk, chunk}, at::kBool).triu_(1);
  const at::Tensor within =
      (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(future, -std::numeric_limits<double>::infinity()).exp();
  // What each step writes: (I + tril(beta k kᵀ ∘ within, −1)) writes = beta (v − decayed state k).
  const at::Tensor transposed = key.transpose(-1, -2);
  const at::Tensor scaled_key = key * beta;
  const at::Tensor coupling = at::matmul(scaled_key, transposed) * within;
  const at::Tensor right = at::cat({chunked(input.value, chunk) * beta, scaled_key * grown}, -1);
  const at::Tensor solved = at::linalg_solve_triangular(coupling, right, /*upper=*/false, /*left=*/true,
                                                        /*unitriangular=*/true);
  const std::int64_t value_dim = input.value.size(-1);
  const at::Tensor writes = solved.narrow(-1, 0, value_dim);
  const at::Tensor reads = solved.narrow(-1, value_dim, key.size(-1));

  const at::Tensor score = at::matmul(query, transposed) * within;
  const at::Tensor grown_query = query * grown;
  const at::Tensor last = decay.narrow(-1, chunk - 1, 1);
  const at::Tensor fading_key = (key * (last - decay).exp().unsqueeze(-1)).transpose(-1, -2);
  const at::Tensor keep = last.exp().unsqueeze(-1);

  const std::int64_t chunks = query.size(2);
  std::vector<at::Tensor> outputs;
  at::Tensor state;  // zero before the first chunk
  for (std::int64_t index = 0; index < chunks; ++index) {
    at::Tensor added = writes.select(2, index);
    at::Tensor out;
    if (state.defined()) {
      added = added - at::matmul(reads.select(2, index), state);
      out = at::matmul(grown_query.select(2, index), state) + at::matmul(score.select(2, index), added);
    } else {
      out = at::matmul(score.select(2, index), added);
    }
    outputs.push_back(out);
    if (index + 1 < chunks) {
      const at::Tensor update = at::matmul(fading_key.select(2, index), added);
      state = state.defined() ? state * keep.select(2, index) + update : update;
    }
  }
  return at::stack(outputs, 2).flatten(2, 3).narrow(2, 0, time);
}

}  // namespace

Module make_gated_delta(const ModuleContext& context, const GatedDelta& delta) {
  const std::int64_t hidden = context.model.hidden;
  const std::int64_t keys = delta.key_heads * delta.key_dim;
  const std::int64_t values = delta.value_heads * delta.value_dim;
  const Module query = make_linear(context, "linear.q", keys, hidden);
  const Module key = make_linear(context, "linear.k", keys, hidden);
  const Module value = make_linear(context, "linear.v", values, hidden);
  const Module gate = make_linear(context, "linear.z", values, hidden);
  const Module beta = make_linear(context, "linear.beta", delta.value_heads, hidden);
  const Module decay = make_linear(context, "linear.decay", delta.value_heads, hidden);
  const WeightPtr taps = weight_of(context, "linear.conv", {2 * keys + values, delta.conv_kernel});
  const WeightPtr a_log = context.weights.take(context.prefix + "linear.a_log", {delta.value_heads});
  const WeightPtr dt_bias = context.weights.take(context.prefix + "linear.dt_bias", {delta.value_heads});
  const WeightPtr norm = weight_of(context, "linear.norm", {delta.value_dim});
  const Module out = make_linear(context, "linear.out", hidden, values);
  const auto type = context.numerics.compute == at::kDouble ? at::kDouble : at::kFloat;
  const std::int64_t repeats = delta.value_heads / delta.key_heads;

  // [batch, time, heads · size] to [batch, value heads, time, size] in fp32; a key head serves several value heads.
  const auto by_head = [=](const at::Tensor& x, std::int64_t heads) {
    at::Tensor split = x.reshape({x.size(0), x.size(1), heads, -1}).to(type);
    if (heads != delta.value_heads) {
      split = split.repeat_interleave(repeats, 2);
    }
    return split.transpose(1, 2);
  };
  return [=](const at::Tensor& x, const Pass& pass) {
    const at::Tensor mixed =
        at::silu(causal_convolution(at::cat({query(x, pass), key(x, pass), value(x, pass)}, -1), taps, pass.queue));
    const double scale = 1.0 / std::sqrt(static_cast<double>(delta.key_dim));
    const DeltaInput input = {
        .query = l2_normalised(by_head(mixed.narrow(-1, 0, keys), delta.key_heads)) * scale,
        .key = l2_normalised(by_head(mixed.narrow(-1, keys, keys), delta.key_heads)),
        .value = by_head(mixed.narrow(-1, 2 * keys, values), delta.value_heads),
        .beta = at::sigmoid(beta(x, pass).to(type)).transpose(1, 2),
        .log_decay = log_decay(decay(x, pass), a_log, dt_bias, pass.queue).transpose(1, 2),
    };
    const at::Tensor y = delta_rule(input, delta.chunk).transpose(1, 2).to(x.scalar_type());
    const at::Tensor z = gate(x, pass).view(y.sizes());
    const at::Tensor gated = swiglu(z, rms_norm(y, norm, pass.queue));
    return out(gated.reshape({x.size(0), x.size(1), values}), pass);
  };
}

}  // namespace plumb::exec
