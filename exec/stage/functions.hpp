// Differentiable functions without weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace plumb::exec {

// silu(gate) · up, keeping only the two.
[[nodiscard]] at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Rotary positions (arXiv 2104.09864), halves rotated: x [batch, time, heads, size], tables [time, size/2].
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

// Softmax attention over [batch, time, heads, size], keys and values with fewer heads or as many; causal, or by an
// additive mask [time, time] if given.
[[nodiscard]] at::Tensor softmax_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                           const std::optional<at::Tensor>& mask);

// Mean over the rows of −log softmax(logits)[target], in fp32 (fp64 for fp64).
[[nodiscard]] at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace plumb::exec
