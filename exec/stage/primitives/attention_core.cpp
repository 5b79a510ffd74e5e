#include "exec/stage/primitives/attention_core.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "exec/stage/primitives/kernel_table.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// All do where the last query sees the first key, and the first query the last one.
bool hides_early_keys(const Sight& sight, std::int64_t queries) {
  return sight.causal && sight.ahead + queries - 1 >= sight.window;
}
bool hides_late_keys(const Sight& sight, std::int64_t keys) { return sight.causal && sight.ahead < keys - 1; }

at::Tensor mask_of(const Sight& sight, std::int64_t queries, std::int64_t keys, const at::TensorOptions& options) {
  const auto all = [&] { return at::ones({queries, keys}, options.dtype(at::kBool)); };
  at::Tensor mask = at::zeros({queries, keys}, options);
  if (hides_early_keys(sight, queries)) mask.masked_fill_(all().tril_(sight.ahead - sight.window), minus_infinity);
  if (hides_late_keys(sight, keys)) mask.masked_fill_(all().triu_(sight.ahead + 1), minus_infinity);
  return mask;
}

// [batch, time, heads, size] to [batch, heads, time, size], each key for all of its query heads.
at::Tensor by_head(const at::Tensor& x, std::int64_t heads) {
  return (x.size(2) == heads ? x : x.repeat_interleave(heads / x.size(2), 2)).transpose(1, 2);
}

// [batch, heads, time, size] to [batch, time, kv_heads, size]: a key's gradient is the sum over its query heads.
at::Tensor summed(const at::Tensor& gradient, std::int64_t kv_heads) {
  const at::Tensor by_time = gradient.transpose(1, 2);
  if (gradient.size(1) == kv_heads) return by_time;
  return by_time.reshape({by_time.size(0), by_time.size(1), kv_heads, -1, by_time.size(3)}).sum(3);
}

double scale_of(const at::Tensor& query) { return 1.0 / std::sqrt(static_cast<double>(query.size(-1))); }

at::Tensor scores(const at::Tensor& query, const at::Tensor& key, const AttentionView& view) {
  const auto type = wide_type(query.scalar_type());
  at::Tensor made = at::matmul(query, key.transpose(-1, -2)).to(type).mul_(scale_of(query));
  if (view.mask) return made.add_(*view.mask);
  if (!view.sight.causal) return made;
  const at::Tensor later = at::ones({query.size(-2), key.size(-2)}, made.options().dtype(at::kBool)).triu_(1);
  return made.masked_fill_(later, minus_infinity);
}

// FlashAttention-2 (arXiv 2307.08691) in LibTorch takes 16-bit types on devices of compute capability 8.0 or more, and
// heads of multiples of 8 up to 256; of more than 192 its backward pass wants the shared memory of data centers' GPUs.
// It reads keys and values as they are, and knows windows. Its gradients of the queries have one order of sums, so the
// same bits each time, in LibTorch's deterministic mode only.
bool goes_by_flash(const at::Tensor& x) {
  const KernelTable* const kernels = kernel_table(x);
  if (kernels == nullptr || (x.scalar_type() != at::kHalf && x.scalar_type() != at::kBFloat16)) return false;
  const int capability = kernels->compute_capability();
  const bool has_much_memory = capability == 80 || capability / 10 == 9 || capability / 10 == 10;
  return capability >= 80 && x.size(-1) % 8 == 0 && x.size(-1) <= (has_much_memory ? 256 : 192);
}

// How far before and behind its own place a query sees, where its place is so that the last query's is the last key.
struct FlashWindow {
  bool causal = false;
  std::optional<std::int64_t> before = {};
  std::optional<std::int64_t> behind = {};
};

FlashWindow flash_window(const Sight& sight, std::int64_t queries, std::int64_t keys) {
  const std::int64_t ahead = sight.ahead - (keys - queries);
  FlashWindow made;
  if (hides_early_keys(sight, queries)) made.before = sight.window - 1 - ahead;
  if (hides_late_keys(sight, keys)) made.behind = ahead;
  made.causal = !made.before && made.behind == 0;
  return made;
}

Attended attend_by_flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const AttentionView& view) {
  const FlashWindow window = flash_window(view.sight, query.size(1), key.size(1));
  auto made = at::_flash_attention_forward(query, key, value, {}, {}, query.size(1), key.size(1), /*dropout_p=*/0.0,
                                           window.causal, /*return_debug_mask=*/false, scale_of(query), window.before,
                                           window.behind);
  return {.out = std::get<0>(made), .log_sum = std::get<1>(made)};
}

AttentionGradients attend_by_flash_backward(const at::Tensor& output_gradient, const at::Tensor& query,
                                            const at::Tensor& key, const at::Tensor& value, const Attended& attended,
                                            const AttentionView& view) {
  const FlashWindow window = flash_window(view.sight, query.size(1), key.size(1));
  const at::Tensor of_dropout;  // there is none
  auto [dquery, dkey, dvalue] =
      at::_flash_attention_backward(output_gradient, query, key, value, attended.out, attended.log_sum.contiguous(), {},
                                    {}, query.size(1), key.size(1), /*dropout_p=*/0.0, window.causal, of_dropout,
                                    of_dropout, scale_of(query), window.before, window.behind);
  return {.query = std::move(dquery), .key = std::move(dkey), .value = std::move(dvalue)};
}

Attended attend_on_host(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const AttentionView& view) {
  const std::int64_t heads = query.size(2);
  auto [out, log_sum] =
      at::_scaled_dot_product_flash_attention_for_cpu(by_head(query, heads), by_head(key, heads), by_head(value, heads),
                                                      0.0, view.sight.causal && !view.mask, view.mask);
  return {.out = out.transpose(1, 2), .log_sum = std::move(log_sum)};
}

AttentionGradients attend_on_host_backward(const at::Tensor& output_gradient, const at::Tensor& query,
                                           const at::Tensor& key, const at::Tensor& value, const Attended& attended,
                                           const AttentionView& view) {
  const std::int64_t heads = query.size(2);
  auto [dquery, dkey, dvalue] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      output_gradient.transpose(1, 2), by_head(query, heads), by_head(key, heads), by_head(value, heads),
      attended.out.transpose(1, 2), attended.log_sum, 0.0, view.sight.causal && !view.mask, view.mask);
  return {.query = dquery.transpose(1, 2), .key = summed(dkey, key.size(2)), .value = summed(dvalue, value.size(2))};
}

}  // namespace

AttentionView view_of(const Sight& sight, std::int64_t queries, std::int64_t keys, const at::Tensor& x) {
  const bool early = hides_early_keys(sight, queries);
  if (!early && !hides_late_keys(sight, keys)) return {};
  const bool triangle = !early && sight.ahead == 0 && queries == keys;
  if (triangle || goes_by_flash(x)) return {.sight = sight};
  return {.sight = sight, .mask = mask_of(sight, queries, keys, x.options().requires_grad(false))};
}

Attended attend_by_products(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionView& view) {
  const std::int64_t heads = query.size(2);
  at::Tensor score = scores(by_head(query, heads), by_head(key, heads), view);
  at::Tensor log_sum = at::logsumexp(score, -1);
  const at::Tensor probability = score.sub_(log_sum.unsqueeze(-1)).exp_();
  return {.out = at::matmul(probability.to(value.scalar_type()), by_head(value, heads)).transpose(1, 2),
          .log_sum = std::move(log_sum)};
}

// With p = exp(score − log_sum): dv = pᵀ dy, ds = p ∘ (dy vᵀ − dy · out), dq = ds k, dk = dsᵀ q, both scaled.
AttentionGradients attend_by_products_backward(const at::Tensor& output_gradient, const at::Tensor& query,
                                               const at::Tensor& key, const at::Tensor& value, const Attended& attended,
                                               const AttentionView& view) {
  const std::int64_t heads = query.size(2);
  const at::Tensor q = by_head(query, heads);
  const at::Tensor k = by_head(key, heads);
  const at::Tensor dy = output_gradient.transpose(1, 2);
  const at::Tensor probability = scores(q, k, view).sub_(attended.log_sum.unsqueeze(-1)).exp_();
  const auto wide = probability.scalar_type();
  const auto narrow = query.scalar_type();
  const at::Tensor inner = dy.to(wide).mul(attended.out.transpose(1, 2).to(wide)).sum(-1, true);
  at::Tensor score_gradient = at::matmul(dy, by_head(value, heads).transpose(-1, -2)).to(wide).sub_(inner);
  score_gradient = score_gradient.mul_(probability).mul_(scale_of(query)).to(narrow);
  return {.query = at::matmul(score_gradient, k).transpose(1, 2),
          .key = summed(at::matmul(score_gradient.transpose(-1, -2), q), key.size(2)),
          .value = summed(at::matmul(probability.to(narrow).transpose(-1, -2), dy), value.size(2))};
}

Attended attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const AttentionView& view) {
  if (goes_by_flash(query)) return attend_by_flash(query, key, value, view);
  return query.is_cpu() ? attend_on_host(query, key, value, view) : attend_by_products(query, key, value, view);
}

AttentionGradients attend_backward(const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const Attended& attended, const AttentionView& view) {
  const auto way = goes_by_flash(query) ? attend_by_flash_backward
                   : query.is_cpu()     ? attend_on_host_backward
                                        : attend_by_products_backward;
  return way(output_gradient, query, key, value, attended, view);
}

}  // namespace plumb::exec
