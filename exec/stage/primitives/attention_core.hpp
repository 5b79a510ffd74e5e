// Softmax attention of all heads at once, forward and backward, in the fastest of three ways: LibTorch's FlashAttention
// on a GPU, its fused attention on the host, products of matrices elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace plumb::exec {

// Which keys a query sees. Query i and key j stand ahead + i − j tokens apart. Each query sees some key, and no key
// stands behind the last query.
struct Sight {
  bool causal = false;     // those 0 to window − 1 tokens before it; else all
  std::int64_t ahead = 0;  // not used unless causal; so is
  std::int64_t window = std::numeric_limits<std::int64_t>::max();
};

// A sight as the way that will be taken wants it.
struct AttentionView {
  Sight sight;
  std::optional<at::Tensor> mask = {};  // [queries, keys], what is added to the scores: 0, or −∞ of a key out of sight
};

// Of `queries` and `keys` in heads of x's size, type and device: x [..., size].
[[nodiscard]] AttentionView view_of(const Sight& sight, std::int64_t queries, std::int64_t keys, const at::Tensor& x);

struct Attended {
  at::Tensor out;      // [batch, queries, heads, size]
  at::Tensor log_sum;  // [batch, heads, queries], of the exponentials of the scores; fp32, fp64 of fp64
};
// query [batch, queries, heads, size], key and value [batch, keys, kv_heads, size], each for heads / kv_heads
// neighbouring heads.
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

// The third way, anywhere. Keeps a score of every query and key while it runs.
[[nodiscard]] Attended attend_by_products(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                          const AttentionView& view);
[[nodiscard]] AttentionGradients attend_by_products_backward(const at::Tensor& output_gradient, const at::Tensor& query,
                                                             const at::Tensor& key, const at::Tensor& value,
                                                             const Attended& attended, const AttentionView& view);

}  // namespace plumb::exec
