// Products and look-ups of a grid's ranks (2d to 3d): each gathers what it needs of its matrix when it uses it, and
// scatters the gradient as it is made.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "exec/stage/primitives/kept_part.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "exec/stage/tensor/crossing.hpp"

namespace plumb::exec {

// Reference-counted by LibTorch, because autograd nodes hold it.
struct GridWeight final : torch::CustomClassHolder {
  WeightPtr stored;  // this rank's part
  TensorGroupPtr group;
  LocalMove forward;
  LocalMove again;      // in I; none: what F has gathered serves it
  LocalMove scattered;  // the gradient, in W
};
using GridWeightPtr = c10::intrusive_ptr<GridWeight>;
// `name`: as the placed block has it, "attention.q.weight".
[[nodiscard]] GridWeightPtr grid_weight(const Divided& divided, const std::string& name, WeightPtr stored);

// x [batch, tokens, in] · weight [out, in]ᵀ + bias, as linear: of all that is gathered of the two.
[[nodiscard]] at::Tensor grid_linear(const at::Tensor& x, const GridWeightPtr& weight, const WeightPtr& bias,
                                     const WeightQueuePtr& queue, const KeptPartPtr& part);

// Rows of a table of which the rank has gathered those from `first_row` on, and zeros for all other tokens; then as
// `exit` says: the ranks that have the other rows add theirs.
[[nodiscard]] at::Tensor grid_embed(const at::Tensor& tokens, const GridWeightPtr& table, std::int64_t first_row,
                                    const CrossingPtr& exit, const WeightQueuePtr& queue);

}  // namespace plumb::exec
