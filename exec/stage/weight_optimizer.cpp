#include "exec/stage/weight_optimizer.hpp"

#include <ATen/ATen.h>

#include <span>
#include <utility>

#include "exec/stage/optimizer.hpp"

namespace plumb::exec {
namespace {

std::span<float> values(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

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
    if (training_.optimizer == Optimizer::adam) {
      adamw_step(AdamW{.rate = training_.learning_rate}, steps_, values(state.master), values(state.weight->gradient),
                 values(state.first_moment), values(state.second_moment));
    } else {
      sgd_step(values(state.master), values(state.weight->gradient), training_.learning_rate);
    }
    if (!state.master.is_same(state.weight->value)) {
      state.weight->value.copy_(state.master);
    }
  }
}

}  // namespace plumb::exec
