// Norms over hidden channels that the ranks of a tensor group share out (arXiv 2104.05343, section 3.2.2).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "exec/stage/primitives/operations.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "exec/stage/tensor/crossing.hpp"

namespace plumb::exec {

// Reference-counted by LibTorch, because autograd nodes hold it.
struct DividedNorm final : torch::CustomClassHolder {
  Statistics statistics;
  std::int64_t hidden = 0;  // of all ranks
  double epsilon = 0;
};
using DividedNormPtr = c10::intrusive_ptr<DividedNorm>;

// As rms_norm, sum_rms_norm and layer_norm of this rank's channels: sums of each token in fp32, added up over the
// ranks in F and in I. The vectors are this rank's parts.
[[nodiscard]] at::Tensor divided_rms_norm(const at::Tensor& x, const WeightPtr& weight, const WeightQueuePtr& queue,
                                          const DividedNormPtr& norm);
[[nodiscard]] NormOfSum divided_sum_rms_norm(const at::Tensor& x, const at::Tensor& beside, const WeightPtr& weight,
                                             const WeightQueuePtr& queue, const DividedNormPtr& norm);
[[nodiscard]] at::Tensor divided_layer_norm(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias,
                                            const WeightQueuePtr& queue, const DividedNormPtr& norm);

}  // namespace plumb::exec
