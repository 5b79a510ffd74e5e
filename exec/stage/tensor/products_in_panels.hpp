// Products of a 2d or 2.5d grid in panels: SUMMA, with the moves of one panel beside the products of another
// (common/program/decomposed.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "exec/stage/tensor/grid_products.hpp"

namespace plumb::exec {

// A matrix that multiplies a value, and its bias, which may be null.
struct PanelProduct {
  GridWeightPtr weight;
  WeightPtr bias;
};

// x [batch, tokens, in], of which this rank has its columns of `in`, times each matrix [out, in]ᵀ, of which it has its
// columns too: each product [batch, tokens, out]. Panels are added up in their order, in the type of the training. I
// adds up what comes back of all products at the rank that keeps it, W their gradients. Not differentiable twice.
// Throws RunError as TensorGroup::in_panels.
[[nodiscard]] std::vector<at::Tensor> products_in_panels(const at::Tensor& x, const CrossingPtr& entry,
                                                         std::vector<PanelProduct> products,
                                                         const WeightQueuePtr& queue);

}  // namespace plumb::exec
