// The gated delta rule as a mixer (Gated DeltaNet, arXiv 2412.06464), with Qwen3-Next's convolution and output gate.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "common/model/chunk_length.hpp"
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/delta_rule.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"
#include "exec/stage/primitives/primitives.hpp"

namespace plumb::exec {
namespace {

constexpr double l2_epsilon = 1e-6;

at::Tensor l2_normalised(const at::Tensor& x) { return x * (x.square().sum(-1, true) + l2_epsilon).rsqrt(); }

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
  const Module out = make_leaving_linear(context, "linear.out", hidden, values);
  const auto type = wide_type(context.numerics.compute);
  const std::int64_t repeats = delta.value_heads / delta.key_heads;
  const double epsilon = norm_epsilon(context.model, NormKind::rmsnorm);

  // [batch, time, heads · size] to [batch, value heads, time, size] in fp32; a key head serves several value heads.
  const auto by_head = [=](const at::Tensor& x, std::int64_t heads) {
    at::Tensor split = x.reshape({x.size(0), x.size(1), heads, -1}).to(type);
    if (heads != delta.value_heads) {
      split = split.repeat_interleave(repeats, 2);
    }
    return split.transpose(1, 2);
  };
  return [=](const at::Tensor& x, const Pass& pass) {
    at::Tensor state;
    at::Tensor unmixed = at::cat({query(x, pass), key(x, pass), value(x, pass)}, -1);
    if (!pass.earlier.empty()) {
      state = pass.earlier.back()[0];
      unmixed = at::cat({pass.earlier.back()[1], unmixed}, 1);
    }
    at::Tensor mixed = causal_convolution(unmixed, taps, pass.queue);
    if (!pass.earlier.empty()) {
      mixed = mixed.narrow(1, mixed.size(1) - x.size(1), x.size(1));
    }
    mixed = at::silu(mixed);
    const double scale = 1.0 / std::sqrt(static_cast<double>(delta.key_dim));
    const DeltaInput input = {
        .query = l2_normalised(by_head(mixed.narrow(-1, 0, keys), delta.key_heads)) * scale,
        .key = l2_normalised(by_head(mixed.narrow(-1, keys, keys), delta.key_heads)),
        .value = by_head(mixed.narrow(-1, 2 * keys, values), delta.value_heads),
        .beta = at::sigmoid(beta(x, pass).to(type)).transpose(1, 2),
        .log_decay = log_decay(decay(x, pass), a_log, dt_bias, pass.queue).transpose(1, 2),
    };
    const bool whole = pass.slice.count == 1;
    const DeltaChoice choice = {.chunk = chunk_length(delta, x.size(1)), .type = x.scalar_type()};
    const at::Tensor y =
        primitives_for(x).delta_rule(input, choice, whole ? nullptr : &state).transpose(1, 2).to(x.scalar_type());
    if (pass.carried != nullptr) {
      const std::int64_t reach = std::min(delta.conv_kernel - 1, unmixed.size(1));
      *pass.carried = {state, unmixed.narrow(1, unmixed.size(1) - reach, reach)};
    }
    const at::Tensor z = gate(x, pass).view(y.sizes());
    const at::Tensor gated = swiglu(z, rms_norm(y, norm, pass.queue, epsilon));
    return out(gated.reshape({x.size(0), x.size(1), values}), pass);
  };
}

}  // namespace plumb::exec
