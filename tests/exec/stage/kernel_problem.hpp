// A stage's function on (emulated) kernels against plain autograd in fp64, beside LibTorch's operations in the same
// type: outputs, gradients of inputs from I, gradients of weights from W.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "exec/stage/primitives/weights.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/emulated_kernels.hpp"

namespace plumb::exec::test {

using Tensors = std::vector<at::Tensor>;
using Weights = std::vector<WeightPtr>;

// A function twice: in plain differentiable operations, and as stages have it.
struct Problem {
  Tensors inputs;  // fp64; so are the weights
  Tensors weights;
  std::function<Tensors(const Tensors& inputs, const Tensors& weights)> plain;
  std::function<Tensors(const Tensors& inputs, const Weights& weights, const WeightQueuePtr& queue)> ours;
};

struct Results {
  Tensors outputs;
  Tensors input_gradients;
  Tensors weight_gradients;
};

inline at::Tensor drawn(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kDouble));
}

inline Tensors leaves(const Tensors& from, at::ScalarType type) {
  Tensors made;
  for (const at::Tensor& x : from) made.push_back(x.to(type, false, true).requires_grad_());
  return made;
}

inline Tensors output_gradients(const Tensors& outputs, at::ScalarType rounding) {
  Tensors made;
  for (const at::Tensor& y : outputs) {
    made.push_back(drawn(y.sizes(), 100 + made.size()).to(rounding).to(y.scalar_type()));
  }
  return made;
}

inline Tensors gradients_of(const Tensors& leaves) {
  Tensors made;
  for (const at::Tensor& x : leaves) made.push_back(x.grad());
  return made;
}

inline Results by_autograd(const Problem& problem, at::ScalarType type, at::ScalarType rounding) {
  const Tensors inputs = leaves(problem.inputs, type);
  const Tensors weights = leaves(problem.weights, type);
  const Tensors outputs = problem.plain(inputs, weights);
  torch::autograd::backward(outputs, output_gradients(outputs, rounding));
  return {outputs, gradients_of(inputs), gradients_of(weights)};
}

inline Results by_stage(const Problem& problem, at::ScalarType type) {
  const Tensors inputs = leaves(problem.inputs, type);
  Weights weights;
  for (const at::Tensor& value : problem.weights) {
    weights.push_back(c10::make_intrusive<Weight>());
    weights.back()->value = value.to(type);
    weights.back()->gradient = at::zeros(value.sizes(), at::kFloat);
  }
  const auto queue = c10::make_intrusive<WeightQueue>();
  const Tensors outputs = problem.ours(inputs, weights, queue);
  torch::autograd::backward(outputs, output_gradients(outputs, type));
  Results made{.outputs = outputs, .input_gradients = gradients_of(inputs), .weight_gradients = {}};
  for (const WeightPtr& weight : weights) CHECK(weight->gradient.count_nonzero().item<std::int64_t>() == 0);  // until W
  queue->run();
  for (const WeightPtr& weight : weights) made.weight_gradients.push_back(weight->gradient);
  return made;
}

inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return at::linalg_vector_norm(a.detach().to(at::kDouble) - b.detach()).item<double>();
}

inline void require_as_near(const Tensors& found, const Tensors& other, const Tensors& truth) {
  REQUIRE(found.size() == truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].sizes() == truth[i].sizes());
    const double size = at::linalg_vector_norm(truth[i].detach()).item<double>();
    REQUIRE(size > 0);
    CHECK(distance(other[i], truth[i]) <= 0.1 * size);  // or being as near to it as that would say nothing
    CHECK(distance(found[i], truth[i]) <= 1.5 * std::max(distance(other[i], truth[i]), 8 * 0x1p-24 * size));
  }
}

// The kernels' error is at most 1.5 times that of LibTorch's operations in the same type: those of the stage, or of
// plain autograd where the stage's compute in fp32 whatever the type.
enum class Other { stage, plain };

inline void require_as_near_as_aten(Problem problem, at::ScalarType type, Other other = Other::stage) {
  INFO(at::toString(type));
  for (Tensors* const all : {&problem.inputs, &problem.weights}) {
    for (at::Tensor& x : *all) x = x.to(type).to(at::kDouble);
  }
  const Results truth = by_autograd(problem, at::kDouble, type);
  const Results aten = other == Other::stage ? by_stage(problem, type) : by_autograd(problem, type, type);
  const KernelTable table = emulated_kernels();
  const KernelsOnHost kernels(table);
  const Results found = by_stage(problem, type);
  {
    INFO("output");
    require_as_near(found.outputs, aten.outputs, truth.outputs);
  }
  {
    INFO("gradient of the input");
    require_as_near(found.input_gradients, aten.input_gradients, truth.input_gradients);
  }
  INFO("gradient of the weight");
  require_as_near(found.weight_gradients, aten.weight_gradients, truth.weight_gradients);
}

inline constexpr at::ScalarType types[] = {at::kFloat, at::kHalf, at::kBFloat16};

}  // namespace plumb::exec::test
