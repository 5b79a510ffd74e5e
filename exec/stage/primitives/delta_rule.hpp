// The recurrence of the gated delta rule (Gated DeltaNet, arXiv 2412.06464), computed chunk by chunk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace plumb::exec {

// All per head: query, key [batch, heads, time, dk], value [batch, heads, time, dv], beta and the log of the decay
// [batch, heads, time]. Recurrence: S ← S·exp(g_t); S ← S + k_t (beta_t (v_t − Sᵀ k_t))ᵀ; o_t = Sᵀ q_t.
struct DeltaInput {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor beta;
  at::Tensor log_decay;
};

// Outputs [batch, heads, time, dv], differentiable. Within a chunk in WY form (arXiv 2406.06484, section 3): matrix
// products and one triangular solve; the state passes from chunk to chunk. Given `state`, [batch, heads, dk, dv], it
// begins with that (undefined: with zero) and leaves the last one there.
[[nodiscard]] at::Tensor delta_rule(const DeltaInput& input, std::int64_t chunk, at::Tensor* state = nullptr);

// The same by the device's kernels with operands of `type`, which the output has too, where these go by chunks of their
// own and the device has the shared memory for it (kernels/gated_delta/gated_delta.hpp); else as above, whose chunks
// beat the kernels' single steps.
struct DeltaChoice {
  std::int64_t chunk = 64;
  at::ScalarType type = at::kFloat;
};
[[nodiscard]] at::Tensor delta_rule_on_kernels(const DeltaInput& input, const DeltaChoice& choice, at::Tensor* state);

}  // namespace plumb::exec
