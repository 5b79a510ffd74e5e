// Products of an asynchronous tensor layout: in pieces of one rank's tokens each, beside the steps of the ring that
// gathers what they read or scatters what they make (common/program/decomposed.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "exec/stage/primitives/weights.hpp"
#include "exec/stage/tensor/crossing.hpp"

namespace plumb::exec {

// A matrix [out, in] that multiplies a value, and its bias, which may be null.
struct ReadingProduct {
  WeightPtr weight;
  WeightPtr bias;
};

// Whether the first input of a site is gathered in pieces beside its product, or its output scattered so.
[[nodiscard]] bool reads_in_pieces(const Divided* divided, std::string_view site);
[[nodiscard]] bool leaves_in_pieces(const Divided* divided, std::string_view site);

// x [batch, tokens, in] of this rank's tokens, as all ranks have it together, and of that each product [batch, tokens,
// out]. I scatters the sum of what comes back of all of them, W gathers x again, each beside its own products.
struct GatheredProducts {
  at::Tensor gathered;
  std::vector<at::Tensor> products;
};
[[nodiscard]] GatheredProducts products_in_pieces(const at::Tensor& x, const CrossingPtr& entry,
                                                  const std::vector<ReadingProduct>& products,
                                                  const WeightQueuePtr& queue);

// x [batch, tokens, in] · weight [out, in]ᵀ, summed over the ranks: this rank's tokens of it. I gathers the output's
// gradient, and keeps it for W.
[[nodiscard]] at::Tensor scattered_product(const at::Tensor& x, const WeightPtr& weight, const CrossingPtr& exit,
                                           const WeightQueuePtr& queue);

}  // namespace plumb::exec
