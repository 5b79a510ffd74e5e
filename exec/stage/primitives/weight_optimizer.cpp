#include "exec/stage/primitives/weight_optimizer.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "exec/device/clock.hpp"
#include "exec/host/memory.hpp"

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
    State state{.weight = std::move(weight), .master = {}, .first_moment = {}, .second_moment = {}, .buffer = {}};
    const at::Tensor mine = value(state);
    const bool offloaded = training.offload.optimizer;
    if (offloaded) {
      const bool is_there = state.weight->own_on_host && is_wide(state);
      state.master = is_there ? mine : host_tensor(mine.sizes(), at::kFloat).copy_(mine);
      state.buffer = host_tensor(mine.sizes(), at::kFloat);
    } else {
      state.master = is_wide(state) ? mine : mine.to(at::kFloat);
    }
    if (training.optimizer == Optimizer::adam) {
      for (at::Tensor* const moment : {&state.first_moment, &state.second_moment}) {
        *moment = offloaded ? host_tensor(mine.sizes(), at::kFloat).zero_() : at::zeros_like(state.master);
      }
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
  copied_ = {};
  const bool offloaded = training_.offload.optimizer;
  if (keep_old && (shard_.count > 1 || offloaded)) throw std::logic_error("old weights are kept whole, and here");
  std::vector<AdamWState> states;
  for (State& state : states_) {
    if (keep_old) {
      state.weight->value = is_wide(state) ? state.weight->value.clone() : at::empty_like(state.weight->value);
      if (is_wide(state)) state.master = state.weight->value;
    }
    if (state.master.numel() == 0) continue;  // fewer elements than ranks
    if (offloaded) {
      step_on_host(state);
      continue;
    }
    if (state.weight->own_on_host) {
      step_here(state);
      continue;
    }
    states.push_back({.master = state.master,
                      .gradient = own_gradient_of(*state.weight, shard_).view_as(state.master),
                      .first_moment = state.first_moment,
                      .second_moment = state.second_moment,
                      .copy = is_wide(state) ? at::Tensor() : value(state)});
  }
  if (!states.empty()) apply(states);
}

void WeightOptimizer::copy(const at::Tensor& to, const at::Tensor& from) {
  const Clock::time_point start = Clock::now();
  to.copy_(from);
  copied_.time += seconds_of(Clock::now()) - seconds_of(start);
  copied_.bytes += Bytes{static_cast<std::int64_t>(to.nbytes())};
}

void WeightOptimizer::step_on_host(const State& state) {
  copy(state.buffer, own_gradient_of(*state.weight, shard_).view_as(state.master));
  apply({{.master = state.master,
          .gradient = state.buffer,
          .first_moment = state.first_moment,
          .second_moment = state.second_moment,
          .copy = {}}});
  const at::Tensor weight = value(state);
  if (state.weight->own_on_host) {
    if (!is_wide(state)) weight.copy_(state.master);
    return;
  }
  if (is_wide(state)) return copy(weight, state.master);
  const at::Tensor narrow =
      at::from_blob(state.buffer.mutable_data_ptr(), state.buffer.sizes(), weight.options().device(at::kCPU));
  narrow.copy_(state.master);
  copy(weight, narrow);
}

void WeightOptimizer::step_here(const State& state) {
  const bool wide = is_wide(state);
  const at::Tensor there = value(state);
  const at::Tensor here = at::empty(there.sizes(), there.options());
  if (wide) copy(here, there);
  apply({{.master = wide ? here : state.master,
          .gradient = own_gradient_of(*state.weight, shard_).view_as(state.master),
          .first_moment = state.first_moment,
          .second_moment = state.second_moment,
          .copy = wide ? at::Tensor() : here}});
  copy(there, here);
}

void WeightOptimizer::apply(const std::vector<AdamWState>& states) const {
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
