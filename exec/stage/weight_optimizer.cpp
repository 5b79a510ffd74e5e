#include "exec/stage/weight_optimizer.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <span>
#include <utility>

namespace plumb::exec {
namespace {

std::span<float> values(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

void adamw_step(const AdamW& settings, std::int64_t step, const at::Tensor& weight, const at::Tensor& gradient,
                const at::Tensor& first_moment, const at::Tensor& second_moment) {
  const auto count = static_cast<double>(step);
  first_moment.mul_(settings.beta1).add_(gradient, 1 - settings.beta1);
  second_moment.mul_(settings.beta2).addcmul_(gradient, gradient, 1 - settings.beta2);
  const double root = std::sqrt(1 - std::pow(settings.beta2, count));
  const at::Tensor scale = second_moment.sqrt().div_(root).add_(settings.epsilon);
  weight.mul_(1 - settings.rate * settings.decay)
      .addcdiv_(first_moment, scale, -settings.rate / (1 - std::pow(settings.beta1, count)));
}

WeightOptimizer::WeightOptimizer(std::vector<WeightPtr> weights, const Training& training) : training_(training) {
  for (WeightPtr& weight : weights) {
    State state;
    const bool wide = weight->value.scalar_type() == at::kFloat;
    state.master = wide ? weight->value : weight->value.to(at::kFloat);
    if (training.optimizer == Optimizer::adam) {
      state.first_moment = at::zeros_like(state.master);
      state.second_moment = at::zeros_like(state.master);
    }
    state.weight = std::move(weight);
    states_.push_back(std::move(state));
  }
}

void WeightOptimizer::step(bool keep_old) {
  ++steps_;
  for (State& state : states_) {
    if (keep_old) {
      const bool wide = state.master.is_same(state.weight->value);
      state.weight->value = wide ? state.weight->value.clone() : at::empty_like(state.weight->value);
      if (wide) state.master = state.weight->value;
    }
    apply(state);
    if (!state.master.is_same(state.weight->value)) {
      state.weight->value.copy_(state.master);
    }
  }
}

void WeightOptimizer::apply(const State& state) const {
  const at::Tensor& gradient = state.weight->gradient;
  const AdamW settings{.rate = training_.learning_rate};
  const bool adam = training_.optimizer == Optimizer::adam;
  if (!state.master.is_cpu()) {
    if (adam) return adamw_step(settings, steps_, state.master, gradient, state.first_moment, state.second_moment);
    state.master.sub_(gradient, training_.learning_rate);
    return;
  }
  if (!adam) return sgd_step(values(state.master), values(gradient), training_.learning_rate);
  adamw_step(settings, steps_, values(state.master), values(gradient), values(state.first_moment),
             values(state.second_moment));
}

}  // namespace plumb::exec
