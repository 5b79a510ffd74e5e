// A frozen projection with an adapter beside it (LoRA, arXiv 2106.09685), I and W apart.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/model/lora.hpp"
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {

// A [rank, in] and B [out, rank], of experts [experts, …]; reference-counted by LibTorch, because autograd holds it.
struct Adapter final : torch::CustomClassHolder {
  WeightPtr a;
  WeightPtr b;
  double scale = 1;  // alpha / rank
};
using AdapterPtr = c10::intrusive_ptr<Adapter>;

// Of the matrix `name`.weight, if the weights have one; else null.
[[nodiscard]] AdapterPtr adapter_of(const ModuleContext& context, const std::string& name);

// x [..., in] · Wᵀ + bias + scale · (x · Aᵀ) · Bᵀ. Kept for I and W: x and x · Aᵀ. I gives the gradient of x, where
// anything before is trained; W needs both, the output's gradient, and that times B, and adds to A and B alone. On
// kernels, B's gradient in parts takes the place of x · Aᵀ and the output's gradient.
[[nodiscard]] at::Tensor adapted_linear(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias,
                                        const AdapterPtr& adapter, const WeightQueuePtr& queue);

// The same for rows sorted by expert, as expert_linear.
[[nodiscard]] at::Tensor adapted_expert_linear(const at::Tensor& x, const WeightPtr& weight, const AdapterPtr& adapter,
                                               const ExpertRowsPtr& rows, const WeightQueuePtr& queue);

// alpha / rank.
[[nodiscard]] inline double scale_of(const Lora& lora) { return lora.alpha / static_cast<double>(lora.rank); }

// W + scale · B · A, made in fp32 (fp64 for fp64): what a model without the adapter computes the same with.
[[nodiscard]] at::Tensor merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale);

}  // namespace plumb::exec
