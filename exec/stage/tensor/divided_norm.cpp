#include "exec/stage/tensor/divided_norm.hpp"

#include <utility>

#include "exec/stage/primitives/autograd.hpp"

namespace plumb::exec {
namespace {

// Means over all channels, of this rank's sums.
at::Tensor means_of(const at::Tensor& sums, const LocalMove& move, const DividedNorm& norm) {
  return norm.statistics.group->moved(sums, move).div_(static_cast<double>(norm.hidden));
}

struct RmsForward {
  at::Tensor y;
  at::Tensor scale;
};
RmsForward rms_forward(const at::Tensor& h, const Weight& weight, const DividedNorm& norm) {
  at::Tensor wide = own_copy(h, wide_type(h.scalar_type()));
  const at::Tensor mean = means_of(wide.square().sum(-1, true), norm.statistics.forward, norm);
  const at::Tensor scale = (mean + norm.epsilon).rsqrt_();
  return {.y = wide.mul_(scale).mul_(weight.value).to(h.scalar_type()), .scale = scale};
}

// As rms_norm_backward in exec/stage/primitives/aten_primitives.cpp: with n = h·scale and dn = dy · weight,
// dx = scale · (dn − n · mean(dn · n)). dh: what comes to h from beside the norm; undefined: nothing.
at::Tensor rms_backward(AutogradContext* context, const at::Tensor& output_gradient, const at::Tensor& dh) {
  const variable_list saved = context->get_saved_variables();
  const auto weight = kept<Weight>(context, "weight");
  const auto norm = kept<DividedNorm>(context, "norm");
  const at::ScalarType type = saved[1].scalar_type();
  const at::Tensor wide_weight = weight->value.to(type);
  at::Tensor normal = own_copy(saved[0], type).mul_(saved[1]);
  at::Tensor dx = own_copy(output_gradient, type);
  {
    const at::Tensor product = dx.mul(normal);
    push_part(kept<WeightQueue>(context, "queue"), weight, rows(product).sum(0));
    const at::Tensor sums = at::matmul(product, wide_weight).unsqueeze(-1);
    normal.mul_(means_of(sums, norm->statistics.backward, *norm));
  }
  dx.mul_(wide_weight).sub_(normal);
  normal.reset();
  dx = dx.mul_(saved[1]).to(saved[0].scalar_type());
  return dh.defined() ? dx + dh : dx;
}

struct DividedRmsNorm : Function<DividedRmsNorm> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight,
                          const WeightQueuePtr& queue, const DividedNormPtr& norm) {
    const RmsForward made = rms_forward(x, *weight, *norm);
    context->save_for_backward({x, made.scale});
    keep(context, "weight", weight);
    keep(context, "queue", queue);
    keep(context, "norm", norm);
    return made.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    return {rms_backward(context, output_gradients[0], {}), Variable(), Variable(), Variable()};
  }
};

struct DividedSumRmsNorm : Function<DividedSumRmsNorm> {
  static variable_list forward(AutogradContext* context, const Variable& x, const Variable& beside,
                               const WeightPtr& weight, const WeightQueuePtr& queue, const DividedNormPtr& norm) {
    const at::Tensor h = x + beside;
    const RmsForward made = rms_forward(h, *weight, *norm);
    context->save_for_backward({h, made.scale});
    keep(context, "weight", weight);
    keep(context, "queue", queue);
    keep(context, "norm", norm);
    return {h, made.y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor dx = rms_backward(context, output_gradients[1], output_gradients[0]);
    return {dx, dx, Variable(), Variable(), Variable()};
  }
};

// Layer normalisation (arXiv 1607.06450). With n = (x − mean)·scale and dn = dy · weight,
// dx = scale · (dn − mean(dn) − n · mean(dn · n)).
struct DividedLayerNorm : Function<DividedLayerNorm> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight, const WeightPtr& bias,
                          const WeightQueuePtr& queue, const DividedNormPtr& norm) {
    at::Tensor wide = own_copy(x, wide_type(x.scalar_type()));
    const at::Tensor sums = at::stack({wide.sum(-1), wide.square().sum(-1)}, -1);
    const at::Tensor means = means_of(sums, norm->statistics.forward, *norm);
    const at::Tensor mean = means.narrow(-1, 0, 1);
    const at::Tensor variance = (means.narrow(-1, 1, 1) - mean.square()).clamp_min_(0);
    const at::Tensor scale = variance.add_(norm->epsilon).rsqrt_();
    context->save_for_backward({x, mean, scale});
    keep(context, "weight", weight);
    keep(context, "bias", bias);
    keep(context, "queue", queue);
    keep(context, "norm", norm);
    return wide.sub_(mean).mul_(scale).mul_(weight->value).add_(bias->value).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto weight = kept<Weight>(context, "weight");
    const auto norm = kept<DividedNorm>(context, "norm");
    const auto queue = kept<WeightQueue>(context, "queue");
    const at::ScalarType type = saved[2].scalar_type();
    at::Tensor normal = own_copy(saved[0], type).sub_(saved[1]).mul_(saved[2]);
    at::Tensor dx = own_copy(output_gradients[0], type);
    push_part(queue, weight, rows(dx * normal).sum(0));
    push_part(queue, kept<Weight>(context, "bias"), rows(dx).sum(0));
    dx.mul_(weight->value.to(type));
    const at::Tensor sums = at::stack({dx.sum(-1), (dx * normal).sum(-1)}, -1);
    const at::Tensor means = means_of(sums, norm->statistics.backward, *norm);
    dx.sub_(means.narrow(-1, 0, 1)).sub_(normal.mul_(means.narrow(-1, 1, 1)));
    normal.reset();
    return {dx.mul_(saved[2]).to(saved[0].scalar_type()), Variable(), Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor divided_rms_norm(const at::Tensor& x, const WeightPtr& weight, const WeightQueuePtr& queue,
                            const DividedNormPtr& norm) {
  return DividedRmsNorm::apply(x, weight, queue, norm);
}

NormOfSum divided_sum_rms_norm(const at::Tensor& x, const at::Tensor& beside, const WeightPtr& weight,
                               const WeightQueuePtr& queue, const DividedNormPtr& norm) {
  variable_list made = DividedSumRmsNorm::apply(x, beside, weight, queue, norm);
  return {.sum = std::move(made[0]), .normal = std::move(made[1])};
}

at::Tensor divided_layer_norm(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias,
                              const WeightQueuePtr& queue, const DividedNormPtr& norm) {
  return DividedLayerNorm::apply(x, weight, bias, queue, norm);
}

}  // namespace plumb::exec
