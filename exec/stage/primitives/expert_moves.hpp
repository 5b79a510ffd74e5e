// Tokens to their experts and back, differentiable: rows sorted by expert, and their weighted sum.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

#include "exec/stage/primitives/primitives.hpp"

namespace plumb::exec {

// Reference-counted by LibTorch, because autograd nodes hold it.
struct DispatchHolder final : torch::CustomClassHolder {
  Dispatch of;
};
using DispatchPtr = c10::intrusive_ptr<DispatchHolder>;

// Of tokens x by `chosen` [tokens, top_k].
[[nodiscard]] DispatchPtr dispatched(const at::Tensor& x, const at::Tensor& chosen, std::int64_t experts);

// x [tokens, hidden] to [tokens · top_k, hidden], the rows of the first expert first.
[[nodiscard]] at::Tensor permuted(const at::Tensor& x, const DispatchPtr& plan);

// Each token's sum of its rows, weighted by share [tokens, top_k].
[[nodiscard]] at::Tensor unpermuted(const at::Tensor& rows, const at::Tensor& share, const DispatchPtr& plan);

}  // namespace plumb::exec
