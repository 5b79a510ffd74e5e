// Differentiable functions without weights.
#pragma once

#include <ATen/core/Tensor.h>

#include "exec/stage/primitives/attention_core.hpp"

namespace plumb::exec {

// silu(gate) · up, keeping only the two.
[[nodiscard]] at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Rotary positions (arXiv 2104.09864): x [batch, time, heads, size], tables [time, dim/2]. Of the first dim elements of
// a head, element i turns with i + dim/2 or, interleaved, each even one with the next; the others stay.
struct RotaryTables {
  at::Tensor cosine;
  at::Tensor sine;
  bool interleaved = false;

  // Of `count` tokens from `first` on.
  [[nodiscard]] RotaryTables narrowed(std::int64_t first, std::int64_t count) const;
};
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const RotaryTables& tables);

// Softmax attention over [batch, time, heads, size], keys and values with fewer heads or as many. A mask, where the way
// that is taken wants one, is there while F and I run. `redone`: the backward makes the output and its statistics
// again, of which nothing is kept (selective recompute, arXiv 2205.05198, section 5); the same bits.
[[nodiscard]] at::Tensor softmax_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                           const Sight& sight, bool redone = false);

// The same for a slice of sequences, each query seeing the `window` keys up to and including its own. Keys and values
// lie in pieces without gaps, the slice's own last, and none out of the first query's sight; they are kept as they are.
[[nodiscard]] at::Tensor sliced_attention(const at::Tensor& query, at::TensorList keys, at::TensorList values,
                                          std::int64_t window, bool redone = false);

// Mean over the rows of −log softmax(logits)[target], in fp32 (fp64 for fp64).
[[nodiscard]] at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace plumb::exec
