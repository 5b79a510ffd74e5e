#include "exec/stage/attention_core.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

#include "exec/stage/weights.hpp"

namespace plumb::exec {
namespace {

double scale_of(const at::Tensor& query) { return 1.0 / std::sqrt(static_cast<double>(query.size(-1))); }

at::Tensor scores(const at::Tensor& query, const at::Tensor& key, const AttentionView& view) {
  const auto type = wide_type(query.scalar_type());
  at::Tensor made = at::matmul(query, key.transpose(-1, -2)).to(type).mul_(scale_of(query));
  if (view.mask) return made.add_(*view.mask);
  if (!view.causal) return made;
  const at::Tensor later = at::ones({query.size(-2), key.size(-2)}, made.options().dtype(at::kBool)).triu_(1);
  return made.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

}  // namespace

Attended attend_by_products(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionView& view) {
  at::Tensor score = scores(query, key, view);
  at::Tensor log_sum = at::logsumexp(score, -1);
  const at::Tensor probability = score.sub_(log_sum.unsqueeze(-1)).exp_();
  return {.out = at::matmul(probability.to(value.scalar_type()), value), .log_sum = std::move(log_sum)};
}

// With p = exp(score − log_sum): dv = pᵀ dy, ds = p ∘ (dy vᵀ − dy · out), dq = ds k, dk = dsᵀ q, both scaled.
AttentionGradients attend_by_products_backward(const at::Tensor& output_gradient, const at::Tensor& query,
                                               const at::Tensor& key, const at::Tensor& value, const Attended& attended,
                                               const AttentionView& view) {
  const at::Tensor probability = scores(query, key, view).sub_(attended.log_sum.unsqueeze(-1)).exp_();
  const auto wide = probability.scalar_type();
  const auto narrow = query.scalar_type();
  const at::Tensor inner = output_gradient.to(wide).mul(attended.out.to(wide)).sum(-1, true);
  at::Tensor score_gradient = at::matmul(output_gradient, value.transpose(-1, -2)).to(wide).sub_(inner);
  score_gradient = score_gradient.mul_(probability).mul_(scale_of(query)).to(narrow);
  return {.query = at::matmul(score_gradient, key),
          .key = at::matmul(score_gradient.transpose(-1, -2), query),
          .value = at::matmul(probability.to(narrow).transpose(-1, -2), output_gradient)};
}

Attended attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const AttentionView& view) {
  if (!query.is_cpu()) return attend_by_products(query, key, value, view);
  auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, view.causal, view.mask);
  return {.out = std::move(out), .log_sum = std::move(log_sum)};
}

AttentionGradients attend_backward(const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const Attended& attended, const AttentionView& view) {
  if (!query.is_cpu()) return attend_by_products_backward(output_gradient, query, key, value, attended, view);
  auto [dquery, dkey, dvalue] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      output_gradient, query, key, value, attended.out, attended.log_sum, 0.0, view.causal, view.mask);
  return {.query = std::move(dquery), .key = std::move(dkey), .value = std::move(dvalue)};
}

}  // namespace plumb::exec
