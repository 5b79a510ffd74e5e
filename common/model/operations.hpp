// The operations of a layer, per token: FLOPs of F, I and W apart, bytes kept for the backward. Costs are sums over it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "common/model/model.hpp"

namespace plumb {

enum class OperationKind : std::uint8_t {
  matmul,
  expert_matmul,
  attention,
  recurrence,
  convolution,
  norm,
  elementwise,
  routing,
  lookup,
  loss
};

// A collective that the operation's F needs when the axis has more than one rank; its I needs the mirrored one of the
// same size. Tensor axis: of the 1d layout (arXiv 1909.08053), the bytes of the tensor that is reduced or gathered.
struct OperationMessage {
  enum class Axis : std::uint8_t { tensor, context, expert, data };
  enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
  Axis axis = Axis::tensor;
  Collective collective = Collective::all_reduce;
  double bytes_per_token = 0;
  bool operator==(const OperationMessage&) const = default;
};

// All amounts are per token of the given sequence. FLOPs count a multiply and an add as two; "a weight matrix M×N costs
// F = I = W = 2MN" (arXiv 2104.04473, appendix). Norms, biases, activations and residuals cost bandwidth, not FLOPs.
// Bytes: flash attention, fused norms that keep input and fp32 statistics, each distinct tensor once; rope, residual
// additions and biases keep nothing. The operation that made a tensor keeps it, norms also keep their input.
struct Operation {
  std::string name = {};
  OperationKind kind = OperationKind::matmul;
  Flops forward = {};
  Flops input_gradient = {};
  Flops weight_gradient = {};
  double kept_bytes = 0;             // from F until I (or B)
  double kept_for_weight_bytes = 0;  // from I until W: inputs of weight matmuls, and their output gradients
  std::optional<OperationMessage> message = {};
  bool operator==(const Operation&) const = default;
};

struct OperationContext {
  std::int64_t sequence = 0;
  ElementType activations = ElementType::bf16;
};

[[nodiscard]] std::vector<Operation> embedding_operations(const Model& model, const OperationContext& context);
[[nodiscard]] std::vector<Operation> layer_operations(const Model& model, std::size_t index,
                                                      const OperationContext& context);
// Final norm, head matmul and cross entropy.
[[nodiscard]] std::vector<Operation> head_operations(const Model& model, const OperationContext& context);
// All multi-token-prediction modules, each with its use of the shared head.
[[nodiscard]] std::vector<Operation> mtp_operations(const Model& model, const OperationContext& context);

struct OperationTotals {
  Flops forward = {};
  Flops input_gradient = {};
  Flops weight_gradient = {};
  double kept_bytes = 0;
  double kept_for_weight_bytes = 0;
  bool operator==(const OperationTotals&) const = default;
};

[[nodiscard]] OperationTotals totals(const std::vector<Operation>& operations);

// Mean number of keys that a query sees: bidirectional T; causal (T+1)/2; window w: w − w(w−1)/(2T) for T ≥ w.
[[nodiscard]] double mean_keys(const SoftmaxAttention& attention, std::int64_t sequence);

// Model FLOPs of one optimizer step, F + I + W over all tokens, MTP included: the numerator of MFU. Without recompute,
// also without that inside flash attention, whose core then costs I = 2 F.
[[nodiscard]] Flops model_flops(const Model& model, std::int64_t sequence, std::int64_t sequences);

}  // namespace plumb
