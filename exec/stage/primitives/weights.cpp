// Weights by name: initial values and accumulation.
#include "exec/stage/primitives/weights.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <string_view>

#include "common/base/digest.hpp"
#include "common/base/error.hpp"
#include "exec/host/memory.hpp"
#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {
namespace {

std::uint64_t seed_of(const std::string& name, std::uint64_t seed) {
  const std::string_view seed_bytes(reinterpret_cast<const char*>(&seed), sizeof seed);
  return fnv1a(seed_bytes, fnv1a(name));
}

bool ends_with(std::string_view text, std::string_view ending) {
  return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

}  // namespace

at::Tensor initial_value(const Parameter& parameter, std::uint64_t seed) {
  const c10::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(seed_of(parameter.name, seed));
  at::Tensor value = at::empty(parameter.shape, at::kFloat);
  if (ends_with(parameter.name, ".lora_b.weight")) {
    return value.zero_();
  }
  if (parameter.role != ParameterRole::vector && parameter.role != ParameterRole::expert_vector) {
    return value.normal_(0.0, 0.02, generator);
  }
  if (ends_with(parameter.name, ".weight") && parameter.shape.size() == 1) {  // of a norm
    return value.fill_(1.0);
  }
  if (ends_with(parameter.name, "a_log")) {  // decay rates between 1 and 16
    return value.uniform_(1.0, 16.0, generator).log_();
  }
  if (ends_with(parameter.name, "dt_bias")) {  // softplus⁻¹ of time steps between 0.001 and 0.1, uniform in the log
    const at::Tensor step = value.uniform_(std::log(1e-3), std::log(1e-1), generator).exp_();
    return step + at::log(-at::expm1(-step));
  }
  if (ends_with(parameter.name, "bias")) {
    return value.zero_();
  }
  if (parameter.shape.size() == 2) {  // depthwise convolution [channels, kernel]: keeps the variance
    return value.normal_(0.0, 1.0 / std::sqrt(static_cast<double>(parameter.shape[1])), generator);
  }
  return value.normal_(0.0, 0.02, generator);
}

IndexRange range_of_part(std::int64_t elements, const StateShard& shard) {
  const auto all = static_cast<std::size_t>(elements);
  const auto parts = static_cast<std::size_t>(shard.count);
  const auto part = static_cast<std::size_t>(shard.index);
  const auto begin = static_cast<std::int64_t>(begin_of_part(all, parts, part));
  return {begin, begin + static_cast<std::int64_t>(elements_of_part(all, parts, part))};
}

at::Tensor part_of(const at::Tensor& whole, const StateShard& shard) {
  if (shard.count == 1) return whole.view(-1);
  const IndexRange range = range_of_part(whole.numel(), shard);
  return whole.view(-1).narrow(0, range.begin, range.end - range.begin);
}

std::int64_t Weight::elements() const { return value.defined() ? value.numel() : elements_of_shape(shape); }

at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType type) {
  const std::shared_ptr<void> memory =
      host_buffer(static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type));
  return at::from_blob(
      memory.get(), sizes, [memory](void*) {}, type);
}

at::Tensor own_gradient_of(const Weight& weight, const StateShard& shard) {
  return weight.own_gradient.defined() ? weight.own_gradient : part_of(weight.gradient, shard);
}

std::vector<WeightPtr> trained(const std::vector<WeightPtr>& weights) {
  std::vector<WeightPtr> found;
  for (const WeightPtr& weight : weights) {
    if (weight->is_trained()) found.push_back(weight);
  }
  return found;
}

at::Tensor own_copy(const at::Tensor& x, at::ScalarType type) {
  return x.to(type, /*non_blocking=*/false, /*copy=*/true);
}

void accumulate(const Weight& weight, const at::Tensor& part) { weight.gradient.add_(part); }

void push_part(const WeightQueuePtr& queue, const WeightPtr& weight, at::Tensor part) {
  if (!weight->is_trained()) return;
  queue->push([weight, part = std::move(part)] { accumulate(*weight, part); });
}

void accumulate_rows(const Weight& bias, const at::Tensor& output_gradient) {
  accumulate(bias, rows(output_gradient).sum(0, false, bias.gradient.scalar_type()));
}

void accumulate_product(at::Tensor gradient, const at::Tensor& output_gradient, const at::Tensor& input) {
  if (gradient.scalar_type() == input.scalar_type()) {
    gradient.addmm_(output_gradient.t(), input);
  } else {
    gradient.add_(at::mm(output_gradient.t(), input));
  }
}

at::Tensor without_history(const at::Tensor& x) { return x.detach(); }

at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor anchor_of(const Weight& weight, bool trained) {
  return at::empty({0}, weight.value.options()).requires_grad_(trained && c10::GradMode::is_enabled());
}

WeightStore::WeightStore(const std::vector<Parameter>& parameters, std::uint64_t seed, const Numerics& numerics,
                         const Cut& cut, const GivenValues& given) {
  const c10::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters) {
    auto weight = c10::make_intrusive<Weight>();
    weight->name = parameter.name;
    // Drawn on the host: the same values on every device.
    at::Tensor mine = given ? given(parameter) : at::Tensor();
    if (!mine.defined()) {
      const at::Tensor whole = initial_value(parameter, seed);
      mine = cut ? cut(parameter, whole) : whole;
    }
    weight->value = mine.to(numerics.rounding).to(numerics.compute).to(numerics.device);
    if (!parameter.frozen) {
      weight->gradient = at::zeros(mine.sizes(), at::TensorOptions().dtype(numerics.gradient).device(numerics.device));
    }
    weights_.push_back(std::move(weight));
  }
  taken_.resize(weights_.size(), false);
}

WeightPtr WeightStore::take(const std::string& name, at::IntArrayRef shape) {
  WeightPtr weight = take(name);
  if (weight->value.sizes() != shape) {
    throw RunError("parameter " + name, "its list has another shape than its module",
                   "common/model/parameters and exec/stage disagree");
  }
  return weight;
}

WeightPtr WeightStore::take(const std::string& name) {
  WeightPtr weight = take_if_there(name);
  if (!weight) throw RunError("parameter " + name, "a module needs it and the model's list does not have it");
  return weight;
}

WeightPtr WeightStore::take_if_there(const std::string& name) {
  for (std::size_t index = 0; index < weights_.size(); ++index) {
    if (weights_[index]->name != name) continue;
    taken_[index] = true;
    return weights_[index];
  }
  return {};
}

void WeightStore::require_all_taken() const {
  for (std::size_t index = 0; index < weights_.size(); ++index) {
    if (!taken_[index]) {
      throw RunError("parameter " + weights_[index]->name, "the model's list has it and no module uses it");
    }
  }
}

}  // namespace plumb::exec
