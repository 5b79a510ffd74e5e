// Softmax attention of all heads at once, forward and backward: LibTorch's fused one on the host, products of matrices
// elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace plumb::exec {

// What queries [batch, heads, queries, size] see of keys and values [batch, heads, keys, size].
struct AttentionView {
  bool causal = false;                  // query i the keys up to i; without a mask, and as many keys as queries
  std::optional<at::Tensor> mask = {};  // [queries, keys], added to the scores
};

struct Attended {
  at::Tensor out;      // [batch, heads, queries, size]
  at::Tensor log_sum;  // [batch, heads, queries], of the exponentials of the scores; fp32, fp64 of fp64
};
[[nodiscard]] Attended attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const AttentionView& view);

struct AttentionGradients {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};
// `attended` is over these keys or over more: then these are their part of the gradients.
[[nodiscard]] AttentionGradients attend_backward(const at::Tensor& output_gradient, const at::Tensor& query,
                                                 const at::Tensor& key, const at::Tensor& value,
                                                 const Attended& attended, const AttentionView& view);

// The second kind, anywhere. Keeps a score of every query and key while it runs.
[[nodiscard]] Attended attend_by_products(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                          const AttentionView& view);
[[nodiscard]] AttentionGradients attend_by_products_backward(const at::Tensor& output_gradient, const at::Tensor& query,
                                                             const at::Tensor& key, const at::Tensor& value,
                                                             const Attended& attended, const AttentionView& view);

}  // namespace plumb::exec
