#include "exec/stage/primitives/weight_optimizer.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace plumb::exec {

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
  std::vector<AdamWState> states;
  for (State& state : states_) {
    if (keep_old) {
      const bool wide = state.master.is_same(state.weight->value);
      state.weight->value = wide ? state.weight->value.clone() : at::empty_like(state.weight->value);
      if (wide) state.master = state.weight->value;
    }
    const bool narrow = !state.master.is_same(state.weight->value);
    states.push_back({.master = state.master,
                      .gradient = state.weight->gradient,
                      .first_moment = state.first_moment,
                      .second_moment = state.second_moment,
                      .copy = narrow ? state.weight->value : at::Tensor()});
  }
  if (states.empty()) return;
  if (training_.optimizer == Optimizer::adam) {
    primitives_for(states.front().master).adamw({.rate = training_.learning_rate}, steps_, states);
  } else {
    for (const AdamWState& state : states) subtract(state);
  }
}

void WeightOptimizer::subtract(const AdamWState& state) const {
  const at::Tensor& weight = state.master;
  if (weight.is_cpu()) {
    const auto size = static_cast<std::size_t>(weight.numel());
    sgd_step({weight.mutable_data_ptr<float>(), size}, {state.gradient.const_data_ptr<float>(), size},
             training_.learning_rate);
  } else {
    weight.sub_(state.gradient, training_.learning_rate);
  }
  if (state.copy.defined()) state.copy.copy_(weight);
}

}  // namespace plumb::exec
