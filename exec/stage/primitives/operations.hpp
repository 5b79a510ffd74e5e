// Differentiable operations with weights: backward gives the input's gradient, weights get theirs from the queue.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/model/model.hpp"
#include "exec/stage/primitives/expert_rows.hpp"
#include "exec/stage/primitives/kept_part.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {

// x [..., in] · weight [out, in]ᵀ + bias. W needs x and the output's gradient; of an x with a `part` that alone is
// kept.
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias,
                                const WeightQueuePtr& queue, const KeptPartPtr& part = {});

// x [..., n] + bias [n], of a product that has been summed over ranks. I reduces the gradient of the bias, as that of a
// norm's vectors below: where it gathers what comes to the bias for the product, that alone is kept until W.
[[nodiscard]] at::Tensor add_bias(const at::Tensor& x, const WeightPtr& bias, const WeightQueuePtr& queue);

// Rows sorted by expert: each meets its expert's matrix of weight [experts, out, in].
[[nodiscard]] at::Tensor expert_linear(const at::Tensor& x, const WeightPtr& weight, const ExpertRowsPtr& rows,
                                       const WeightQueuePtr& queue);

// Norms over the last dimension, statistics in fp32. The gradient of a vector is reduced in I, since keeping its
// operands until W would cost more memory than the matmuls' own; W adds it.
[[nodiscard]] at::Tensor rms_norm(const at::Tensor& x, const WeightPtr& weight, const WeightQueuePtr& queue,
                                  double epsilon = usual_rms_epsilon);
// Of x + beside, which it gives as well.
struct NormOfSum {
  at::Tensor sum;
  at::Tensor normal;
};
[[nodiscard]] NormOfSum sum_rms_norm(const at::Tensor& x, const at::Tensor& beside, const WeightPtr& weight,
                                     const WeightQueuePtr& queue, double epsilon = usual_rms_epsilon);
[[nodiscard]] at::Tensor layer_norm(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias,
                                    const WeightQueuePtr& queue, double epsilon = usual_layer_norm_epsilon);

// Depthwise causal convolution over time: x [batch, time, channels], weight [channels, kernel].
[[nodiscard]] at::Tensor causal_convolution(const at::Tensor& x, const WeightPtr& weight, const WeightQueuePtr& queue);

// −exp(A_log) · softplus(x + dt_bias), in fp32: the log of the decay of a gated delta rule (arXiv 2412.06464), per
// head.
[[nodiscard]] at::Tensor log_decay(const at::Tensor& x, const WeightPtr& a_log, const WeightPtr& dt_bias,
                                   const WeightQueuePtr& queue);

// Rows of a table; `positions`, if there is such a table, adds its rows from `first_token` on to each sequence.
[[nodiscard]] at::Tensor embed(const at::Tensor& tokens, const WeightPtr& table, const WeightPtr& positions,
                               std::int64_t first_token, const WeightQueuePtr& queue);

}  // namespace plumb::exec
