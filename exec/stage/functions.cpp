// Each function is one autograd function that keeps as little as its backward can do with.
#include "exec/stage/functions.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace plumb::exec {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct SwiGlu : Function<SwiGlu> {
  static Variable forward(AutogradContext* context, const Variable& gate, const Variable& up) {
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& dy = output_gradients[0];
    at::Tensor dup = at::silu(saved[0]).mul_(dy);
    at::Tensor dgate = at::silu_backward(dy.mul(saved[1]), saved[0]);
    return {dgate, dup};
  }
};

struct Rotate : Function<Rotate> {
  static Variable forward(AutogradContext* context, const Variable& x, const at::Tensor& cosine, const at::Tensor& sine,
                          bool interleaved) {
    context->saved_data["cosine"] = cosine;
    context->saved_data["sine"] = sine;
    context->saved_data["interleaved"] = interleaved;
    return rotated(x, cosine, sine, interleaved);
  }

  // A rotation's transpose turns back.
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor sine = context->saved_data["sine"].toTensor();
    at::Tensor dx = rotated(output_gradients[0], context->saved_data["cosine"].toTensor(), sine.neg(),
                            context->saved_data["interleaved"].toBool());
    return {dx, Variable(), Variable(), Variable()};
  }

 private:
  static at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool interleaved) {
    const std::int64_t half = cosine.size(1);
    const std::int64_t rest = x.size(-1) - 2 * half;
    const at::Tensor c = cosine.unsqueeze(1);
    const at::Tensor s = sine.unsqueeze(1);
    const auto part = [&](const at::Tensor& of, std::int64_t which) {
      return interleaved ? of.slice(-1, which, 2 * half, 2) : of.narrow(-1, which * half, half);
    };
    const at::Tensor first = part(x, 0);
    const at::Tensor second = part(x, 1);
    at::Tensor y = at::empty(x.sizes(), x.options());
    part(y, 0).copy_((first * c).sub_(second * s));
    part(y, 1).copy_((second * c).add_(first * s));
    if (rest > 0) {
      y.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
    }
    return y;
  }
};

// Flash attention on CPU. Keys and values are kept as they are and repeated for the query heads only while it runs.
struct SoftmaxAttentionFunction : Function<SoftmaxAttentionFunction> {
  static Variable forward(AutogradContext* context, const Variable& query, const Variable& key, const Variable& value,
                          const std::optional<at::Tensor>& mask, bool causal) {
    const bool triangle = causal && !mask.has_value();
    const std::int64_t heads = query.size(2);
    auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(by_head(query, heads), by_head(key, heads),
                                                                          by_head(value, heads), 0.0, triangle, mask);
    context->save_for_backward({query, key, value, out, log_sum});
    context->saved_data["mask"] = mask;
    context->saved_data["triangle"] = triangle;
    return out.transpose(1, 2);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto mask = context->saved_data["mask"].toOptional<at::Tensor>();
    const std::int64_t heads = saved[0].size(2);
    auto [dquery, dkey, dvalue] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        output_gradients[0].transpose(1, 2), by_head(saved[0], heads), by_head(saved[1], heads),
        by_head(saved[2], heads), saved[3], saved[4], 0.0, context->saved_data["triangle"].toBool(), mask);
    return {dquery.transpose(1, 2), summed(dkey, saved[1].size(2)), summed(dvalue, saved[2].size(2)), Variable(),
            Variable()};
  }

 private:
  static at::Tensor by_head(const at::Tensor& x, std::int64_t heads) {
    if (x.size(2) == heads) {
      return x.transpose(1, 2);
    }
    return x.repeat_interleave(heads / x.size(2), 2).transpose(1, 2);
  }

  // [batch, heads, time, size] to [batch, time, kv_heads, size]: a key's gradient is the sum over its query heads.
  static at::Tensor summed(const at::Tensor& gradient, std::int64_t kv_heads) {
    const at::Tensor by_time = gradient.transpose(1, 2);
    if (gradient.size(1) == kv_heads) {
      return by_time;
    }
    return by_time.reshape({by_time.size(0), by_time.size(1), kv_heads, -1, by_time.size(3)}).sum(3);
  }
};

struct CrossEntropy : Function<CrossEntropy> {
  static Variable forward(AutogradContext* context, const Variable& logits, const at::Tensor& targets) {
    const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor log_probability = at::log_softmax(logits.reshape({-1, logits.size(-1)}), -1, type);
    const at::Tensor target = targets.reshape({-1, 1});
    context->save_for_backward({log_probability, target});
    context->saved_data["type"] = static_cast<std::int64_t>(logits.scalar_type());
    context->saved_data["sizes"] = logits.sizes().vec();
    return log_probability.gather(1, target).mean().neg_();
  }

  // (softmax − one-hot) / rows, made in place of the kept logarithms.
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor gradient = saved[0].exp_();
    gradient.scatter_add_(1, saved[1], at::full_like(saved[1], -1.0, gradient.options()));
    gradient.mul_(output_gradients[0] / static_cast<double>(gradient.size(0)));
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradient.to(type).view(context->saved_data["sizes"].toIntVector()), Variable()};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return SwiGlu::apply(gate, up); }

at::Tensor rotate(const at::Tensor& x, const RotaryTables& tables) {
  return Rotate::apply(x, tables.cosine, tables.sine, tables.interleaved);
}

at::Tensor softmax_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const std::optional<at::Tensor>& mask, bool causal) {
  return SoftmaxAttentionFunction::apply(query, key, value, mask, causal);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return CrossEntropy::apply(logits, targets);
}

}  // namespace plumb::exec
