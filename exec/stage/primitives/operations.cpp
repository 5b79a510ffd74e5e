// Each operation is one autograd function: it keeps what its backward and its weights need, and nothing else.
#include "exec/stage/primitives/operations.hpp"

#include <tuple>
#include <utility>

#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/primitives/expert_products.hpp"
#include "exec/stage/primitives/primitives.hpp"

namespace plumb::exec {
namespace {

struct Linear : Function<Linear> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight, const WeightPtr& bias,
                          const WeightQueuePtr& queue, const KeptPartPtr& part) {
    if (weight->is_trained() && !part) context->save_for_backward({x});
    keep(context, "part", part);
    keep(context, "weight", weight);
    keep(context, "bias", bias);
    keep(context, "queue", queue);
    return at::linear(x, weight->value, bias ? std::optional<at::Tensor>(bias->value) : std::nullopt);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto weight = kept<Weight>(context, "weight");
    const auto bias = kept<Weight>(context, "bias");
    const at::Tensor dy = output_gradients[0].contiguous();
    if (weight->is_trained()) {
      const auto part = kept<KeptPart>(context, "part");
      const at::Tensor x = part ? at::Tensor() : without_history(context->get_saved_variables()[0]);
      kept<WeightQueue>(context, "queue")->push([x, part, dy, weight, bias] {
        accumulate_product(weight->gradient, rows(dy), rows(part ? part->gathered() : x));
        if (bias) accumulate_rows(*bias, dy);
      });
    }
    return {at::matmul(dy, weight->value), Variable(), Variable(), Variable(), Variable()};
  }
};

struct AddBias : Function<AddBias> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& bias,
                          const WeightQueuePtr& queue) {
    keep(context, "bias", bias);
    keep(context, "queue", queue);
    return x + bias->value;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto bias = kept<Weight>(context, "bias");
    const at::Tensor& dy = output_gradients[0];
    const at::ScalarType wide = wide_type(dy.scalar_type());
    push_part(kept<WeightQueue>(context, "queue"), bias, rows(dy).sum(0, false, wide));
    return {dy, Variable(), Variable()};
  }
};

struct ExpertLinear : Function<ExpertLinear> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight,
                          const ExpertRowsPtr& rows, const WeightQueuePtr& queue) {
    if (weight->is_trained()) context->save_for_backward({x});
    keep(context, "rows", rows);
    keep(context, "weight", weight);
    keep(context, "queue", queue);
    return expert_product(x, weight->value.transpose(1, 2), *rows);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto weight = kept<Weight>(context, "weight");
    const auto rows = kept<ExpertRows>(context, "rows");
    const at::Tensor dy = output_gradients[0].contiguous();
    if (weight->is_trained()) {
      const at::Tensor x = without_history(context->get_saved_variables()[0]);
      kept<WeightQueue>(context, "queue")->push([x, dy, weight, rows] {
        accumulate_expert_product(weight->gradient, dy, x, *rows);
      });
    }
    return {expert_product(dy, weight->value, *rows), Variable(), Variable(), Variable()};
  }
};

// With what stands beside it, what comes to h from there; without, an undefined one.
at::Tensor backward_of_norm(AutogradContext* context, const at::Tensor& dy, const at::Tensor& dh) {
  const variable_list saved = context->get_saved_variables();
  const auto weight = kept<Weight>(context, "weight");
  const bool trained = weight->is_trained();
  NormBackward made =
      primitives_for(dy).rms_norm_backward({.h = saved[0], .y = {}, .scale = saved[1]}, weight->value, dy, dh, trained);
  if (trained) {
    kept<WeightQueue>(context, "queue")
        ->push([weight, parts = std::move(made.weight_parts), add = primitives_for(dy).add_parts] {
          add(weight->gradient, parts);
        });
  }
  return made.dx;
}

struct RmsNorm : Function<RmsNorm> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight,
                          const WeightQueuePtr& queue, double epsilon) {
    const NormForward made = primitives_for(x).rms_norm(x, {}, weight->value, epsilon);
    context->save_for_backward({x, made.scale});
    keep(context, "weight", weight);
    keep(context, "queue", queue);
    return made.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    return {backward_of_norm(context, output_gradients[0], {}), Variable(), Variable(), Variable()};
  }
};

struct SumRmsNorm : Function<SumRmsNorm> {
  static variable_list forward(AutogradContext* context, const Variable& x, const Variable& beside,
                               const WeightPtr& weight, const WeightQueuePtr& queue, double epsilon) {
    const NormForward made = primitives_for(x).rms_norm(x, beside, weight->value, epsilon);
    context->save_for_backward({made.h, made.scale});
    keep(context, "weight", weight);
    keep(context, "queue", queue);
    return {made.h, made.y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor dx = backward_of_norm(context, output_gradients[1], output_gradients[0]);
    return {dx, dx, Variable(), Variable(), Variable()};
  }
};

// Layer normalisation (arXiv 1607.06450).
struct LayerNorm : Function<LayerNorm> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight, const WeightPtr& bias,
                          const WeightQueuePtr& queue, double epsilon) {
    auto [y, mean, scale] = at::native_layer_norm(x, {x.size(-1)}, weight->value, bias->value, epsilon);
    context->save_for_backward({x, mean, scale});
    keep(context, "weight", weight);
    keep(context, "bias", bias);
    keep(context, "queue", queue);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto weight = kept<Weight>(context, "weight");
    const auto bias = kept<Weight>(context, "bias");
    const auto queue = kept<WeightQueue>(context, "queue");
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        output_gradients[0].contiguous(), saved[0], {saved[0].size(-1)}, saved[1], saved[2], weight->value, bias->value,
        {true, weight->is_trained(), bias->is_trained()});
    push_part(queue, weight, dweight);
    push_part(queue, bias, dbias);
    return {dx, Variable(), Variable(), Variable(), Variable()};
  }
};

struct CausalConvolution : Function<CausalConvolution> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight,
                          const WeightQueuePtr& queue) {
    if (weight->is_trained()) context->save_for_backward({x});
    keep(context, "weight", weight);
    keep(context, "queue", queue);
    const at::Tensor taps = weight->value.to(wide_type(x.scalar_type()));
    const std::int64_t time = x.size(1);
    const std::int64_t kernel = taps.size(1);
    at::Tensor y = x.to(taps.scalar_type()).mul(taps.select(1, kernel - 1));
    for (std::int64_t delay = 1; delay < std::min(kernel, time); ++delay) {
      y.narrow(1, delay, time - delay)
          .addcmul_(x.narrow(1, 0, time - delay).to(taps.scalar_type()), taps.select(1, kernel - 1 - delay));
    }
    return y.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto weight = kept<Weight>(context, "weight");
    const at::Tensor taps = weight->value.to(wide_type(output_gradients[0].scalar_type()));
    const bool trained = weight->is_trained();
    const at::Tensor x = trained ? context->get_saved_variables()[0].to(taps.scalar_type()) : at::Tensor();
    const at::Tensor dy = output_gradients[0].to(taps.scalar_type());
    const std::int64_t time = dy.size(1);
    const std::int64_t kernel = taps.size(1);
    at::Tensor dx = at::zeros_like(dy);
    at::Tensor dtaps = at::zeros_like(taps);
    for (std::int64_t delay = 0; delay < std::min(kernel, time); ++delay) {
      const at::Tensor late = dy.narrow(1, delay, time - delay);
      dx.narrow(1, 0, time - delay).addcmul_(late, taps.select(1, kernel - 1 - delay));
      if (!trained) continue;
      dtaps.select(1, kernel - 1 - delay).copy_(late.mul(x.narrow(1, 0, time - delay)).sum(at::IntArrayRef({0, 1})));
    }
    push_part(kept<WeightQueue>(context, "queue"), weight, dtaps);
    return {dx.to(output_gradients[0].scalar_type()), Variable(), Variable()};
  }
};

struct LogDecay : Function<LogDecay> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& a_log, const WeightPtr& dt_bias,
                          const WeightQueuePtr& queue) {
    context->save_for_backward({x});
    keep(context, "a_log", a_log);
    keep(context, "dt_bias", dt_bias);
    keep(context, "queue", queue);
    const auto type = wide_type(x.scalar_type());
    return at::softplus(x.to(type) + dt_bias->value.to(type)).mul_(a_log->value.to(type).exp().neg());
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const auto a_log = kept<Weight>(context, "a_log");
    const auto dt_bias = kept<Weight>(context, "dt_bias");
    const auto queue = kept<WeightQueue>(context, "queue");
    const auto type = wide_type(x.scalar_type());
    const at::Tensor shifted = x.to(type) + dt_bias->value.to(type);
    const at::Tensor scaled = output_gradients[0].mul(a_log->value.to(type).exp().neg());
    const at::Tensor dx = scaled.mul(at::sigmoid(shifted));
    push_part(queue, a_log, rows(scaled.mul(at::softplus(shifted))).sum(0));
    push_part(queue, dt_bias, rows(dx).sum(0));
    return {dx.to(x.scalar_type()), Variable(), Variable(), Variable()};
  }
};

// Token ids have no gradient, so it takes an anchor.
struct Embed : Function<Embed> {
  static Variable forward(AutogradContext* context, const Variable& /*anchor*/, const at::Tensor& tokens,
                          const WeightPtr& table, const WeightPtr& positions, std::int64_t first_token,
                          const WeightQueuePtr& queue) {
    context->save_for_backward({tokens});
    keep(context, "table", table);
    keep(context, "positions", positions);
    keep(context, "queue", queue);
    context->saved_data["first"] = first_token;
    at::Tensor y = at::embedding(table->value, tokens);
    if (positions) {
      y.add_(positions->value.narrow(0, first_token, tokens.size(1)));
    }
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor tokens = context->get_saved_variables()[0];
    const auto table = kept<Weight>(context, "table");
    const auto positions = kept<Weight>(context, "positions");
    const at::Tensor dy = output_gradients[0];
    const std::int64_t first = context->saved_data["first"].toInt();
    kept<WeightQueue>(context, "queue")->push([tokens, dy, table, positions, first] {
      const at::Tensor wide = dy.to(table->gradient.scalar_type());
      table->gradient.index_add_(0, tokens.flatten(), rows(wide));
      if (positions) {
        positions->gradient.narrow(0, first, tokens.size(1)).add_(wide.sum(0));
      }
    });
    return {Variable(), Variable(), Variable(), Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias, const WeightQueuePtr& queue,
                  const KeptPartPtr& part) {
  return Linear::apply(x, weight, bias, queue, part);
}

at::Tensor add_bias(const at::Tensor& x, const WeightPtr& bias, const WeightQueuePtr& queue) {
  return AddBias::apply(x, bias, queue);
}

at::Tensor expert_linear(const at::Tensor& x, const WeightPtr& weight, const ExpertRowsPtr& rows,
                         const WeightQueuePtr& queue) {
  return ExpertLinear::apply(x, weight, rows, queue);
}

at::Tensor rms_norm(const at::Tensor& x, const WeightPtr& weight, const WeightQueuePtr& queue, double epsilon) {
  return RmsNorm::apply(x, weight, queue, epsilon);
}

NormOfSum sum_rms_norm(const at::Tensor& x, const at::Tensor& beside, const WeightPtr& weight,
                       const WeightQueuePtr& queue, double epsilon) {
  variable_list made = SumRmsNorm::apply(x, beside, weight, queue, epsilon);
  return {.sum = std::move(made[0]), .normal = std::move(made[1])};
}

at::Tensor layer_norm(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias, const WeightQueuePtr& queue,
                      double epsilon) {
  return LayerNorm::apply(x, weight, bias, queue, epsilon);
}

at::Tensor causal_convolution(const at::Tensor& x, const WeightPtr& weight, const WeightQueuePtr& queue) {
  return CausalConvolution::apply(x, weight, queue);
}

at::Tensor log_decay(const at::Tensor& x, const WeightPtr& a_log, const WeightPtr& dt_bias,
                     const WeightQueuePtr& queue) {
  return LogDecay::apply(x, a_log, dt_bias, queue);
}

at::Tensor embed(const at::Tensor& tokens, const WeightPtr& table, const WeightPtr& positions, std::int64_t first_token,
                 const WeightQueuePtr& queue) {
  return Embed::apply(anchor_of(*table, table->is_trained()), tokens, table, positions, first_token, queue);
}

}  // namespace plumb::exec
