// Where a block's value goes from one placement to another: a collective in F, and its mirror in I.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "exec/stage/primitives/kept_part.hpp"
#include "exec/stage/tensor/division.hpp"
#include "exec/stage/tensor/tensor_group.hpp"

namespace plumb::exec {

// Of one value, as the placed block has its moves. Reference-counted by LibTorch, because autograd nodes hold it.
struct Crossing final : torch::CustomClassHolder {
  TensorGroupPtr group;
  LocalMove forward;
  LocalMove backward;
  LocalMove for_weights;  // in W: the value gathered again, or its gradient, which I has not gathered
};
using CrossingPtr = c10::intrusive_ptr<Crossing>;

// A block as one rank of a tensor group has it; none: it is whole.
struct Divided {
  Division of;
  TensorGroupPtr group;
  BlockMoves moves;  // of `of`

  [[nodiscard]] LocalMove find(Phase phase, Role role, std::string_view tensor) const;
};

// Of a value that divided sites read, and of what a site makes: null where nothing moves.
[[nodiscard]] CrossingPtr entry_of(const Divided* divided, std::string_view value);
[[nodiscard]] CrossingPtr entry_into(const Divided* divided, std::string_view site);  // of its first input
[[nodiscard]] CrossingPtr exit_of(const Divided* divided, std::string_view site);

// How the sums inside a site are made whole; of a site that has all of them without a group.
struct Statistics {
  TensorGroupPtr group;
  LocalMove forward;
  LocalMove backward;  // of a norm
};
[[nodiscard]] Statistics statistics_of(const Divided* divided, std::string_view site);

// x [batch, tokens, …] as it is on the other side, differentiable; of null, or a crossing without a move in F, x
// itself. Both ways throw RunError as TensorGroup::moved.
[[nodiscard]] at::Tensor crossed(const at::Tensor& x, const CrossingPtr& crossing);
// x as it waits for W, where W gathers it: a value, or the gradient of one. Null where W reads what there is.
// Gathering throws RunError as TensorGroup::moved.
[[nodiscard]] KeptPartPtr kept_part(const at::Tensor& x, const CrossingPtr& crossing);

}  // namespace plumb::exec
