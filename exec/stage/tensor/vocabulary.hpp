// Embedding and loss over a vocabulary that the ranks of a tensor group share out (arXiv 1909.08053, section 3).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "exec/stage/primitives/weights.hpp"
#include "exec/stage/tensor/crossing.hpp"

namespace plumb::exec {

// Rows of a table of which this rank has those from `first_row` on, and zeros for tokens of other ranks, summed over
// the ranks as `exit` says: what a whole table gives, by bits.
[[nodiscard]] at::Tensor embed_part(const at::Tensor& tokens, const WeightPtr& table, std::int64_t first_row,
                                    const CrossingPtr& exit, const WeightQueuePtr& queue);

// Of a sequence the first of so many tokens that the rank at `position` of its tensor group has: with sequence
// parallelism others have others.
[[nodiscard]] constexpr std::int64_t first_own_token(int position, std::int64_t tokens, std::int64_t sequence) {
  return position * tokens % sequence;
}

// x [batch, tokens, hidden] + the rows of `positions` from `first_token` on.
[[nodiscard]] at::Tensor add_positions(const at::Tensor& x, const WeightPtr& positions, std::int64_t first_token,
                                       const WeightQueuePtr& queue);

// Mean of −log softmax over the logits of all ranks at the targets, whose columns here are those from `first_column`
// on; the same bits on every rank. Kept for I: what cross_entropy keeps of as many columns.
[[nodiscard]] at::Tensor divided_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                               std::int64_t first_column, const Statistics& statistics);

}  // namespace plumb::exec
