#include "exec/stage/primitives/weight_optimizer.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
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

WeightOptimizer::WeightOptimizer(std::vector<WeightPtr> weights, const Training& training, StateShard shard)
    : training_(training), shard_(shard) {
  for (WeightPtr& weight : weights) {
    State state{.weight = std::move(weight), .master = {}, .first_moment = {}, .second_moment = {}};
    const at::Tensor mine = value(state);
    state.master = is_wide(state) ? mine : mine.to(at::kFloat);
    if (training.optimizer == Optimizer::adam) {
      state.first_moment = at::zeros_like(state.master);
      state.second_moment = at::zeros_like(state.master);
    }
    states_.push_back(std::move(state));
  }
}

at::Tensor WeightOptimizer::value(const State& state) const {
  const Weight& weight = *state.weight;
  const bool own = weight.own_value.defined() || shard_.count == 1;
  return own ? weight.kept() : part_of(weight.value, shard_);
}

void WeightOptimizer::step(bool keep_old) {
  ++steps_;
  if (keep_old && shard_.count > 1) throw std::logic_error("old weights are kept whole");
  std::vector<AdamWState> states;
  for (State& state : states_) {
    if (keep_old) {
      state.weight->value = is_wide(state) ? state.weight->value.clone() : at::empty_like(state.weight->value);
      if (is_wide(state)) state.master = state.weight->value;
    }
    if (state.master.numel() == 0) continue;  // fewer elements than ranks
    states.push_back({.master = state.master,
                      .gradient = own_gradient_of(*state.weight, shard_).view_as(state.master),
                      .first_moment = state.first_moment,
                      .second_moment = state.second_moment,
                      .copy = is_wide(state) ? at::Tensor() : value(state)});
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
