// What a tensor group moves for its pipeline rank's part of a head (exec/stage/head_part.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "exec/stage/tensor/crossing.hpp"
#include "exec/stage/vocabulary/part_softmax.hpp"

namespace plumb::exec {

// The moves of the placed block (ModelPart::vocabulary, or with target rows), in the order in which a HeadPart makes
// them; without a group nothing moves. Hidden states of the tokens that this rank has stand as [b, s, h], those of all
// tokens as [n, h]; both are the same where tokens are not divided. Throws as TensorGroup::moved.
class PartMoves {
 public:
  // `divided`: as the block is; null: it is whole. It must outlive this.
  explicit PartMoves(const Divided* divided);

  [[nodiscard]] bool has_group() const { return group_ != nullptr; }

  // x of all tokens: in F, and again in W.
  [[nodiscard]] at::Tensor gathered(const at::Tensor& x, Phase phase) const;
  // Of all rows of the part, the same on all its ranks.
  [[nodiscard]] TokenStatistics joined(TokenStatistics own) const;
  // Summands of all tokens [n, h], of own tokens like `x` the sum.
  [[nodiscard]] at::Tensor added_up(const at::Tensor& gradient, const at::Tensor& x) const;
  // Of own tokens like `x` the rows of `table` at those targets that a rank of the group has, zeros of others.
  [[nodiscard]] at::Tensor target_rows(const at::Tensor& table, const LocalIndices& targets, const at::Tensor& x) const;
  // Of [n, 1] those of own tokens, [b, s, 1].
  [[nodiscard]] at::Tensor of_own_tokens(const at::Tensor& of_all, const at::Tensor& x) const;

 private:
  TensorGroupPtr group_;
  LocalMove gather_;
  LocalMove gather_again_;
  Statistics statistics_;
  LocalMove sum_;
  LocalMove sum_of_rows_;
};

}  // namespace plumb::exec
