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
  attention_matmul,  // of heads, without flash
  recurrence,
  convolution,
  norm,
  elementwise,
  residual,
  routing,
  lookup,
  loss
};

// Weights that multiply tokens.
[[nodiscard]] constexpr bool is_matmul(OperationKind kind) {
  return kind == OperationKind::matmul || kind == OperationKind::expert_matmul;
}

// Of a matmul: `matrices` of outputs × inputs (experts), each token multiplied by `times` of them; of a class head,
// which sees one token of a sequence, `times` is below 1. Of attention without flash: the `matrices` are the heads of
// one sequence, outputs and inputs the keys and the head's size.
struct MatmulShape {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::int64_t matrices = 1;
  double times = 1;
  bool bias = false;
  bool operator==(const MatmulShape&) const = default;
};

// Bytes per token that an operation bound by memory reads and writes.
struct StreamedBytes {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  bool operator==(const StreamedBytes&) const = default;
};

// Bytes per token that an operation makes and lets go of again, or hands on, at its largest moment.
struct Working {
  double forward = 0;
  double input_gradient = 0;
  bool operator==(const Working&) const = default;
};

// With LoRA (common/model/lora.hpp) a matmul's own weights are frozen; A and B of its adapter are trained.
struct Tuning {
  bool frozen = false;
  std::int64_t adapter_rank = 0;  // 0: none
  bool gradient_below = true;     // something before it is trained: it gives the gradient of its input
  bool operator==(const Tuning&) const = default;
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
  MatmulShape shape = {};
  StreamedBytes streamed = {};
  std::string input = {};  // of a matmul: the operation whose output it multiplies
  double kept_as_input_bytes =
      0;                       // of kept_bytes, what only weight gradients need: that output, or a convolution's input
  double workspace_bytes = 0;  // while it runs, beside what it keeps; not per token: once, whatever the microbatch
  // Of F beside what it keeps, of I beside what F kept; none: as much as it keeps, which is what most make in I.
  std::optional<Working> working = {};
  Tuning tuning = {};
  std::string site = {};  // the one that it is a part of (common/placement/site.hpp), if that has another name
  bool operator==(const Operation&) const = default;
};

[[nodiscard]] inline const std::string& site_name(const Operation& operation) {
  return operation.site.empty() ? operation.name : operation.site;
}

struct OperationContext {
  std::int64_t sequence = 0;  // tokens of a sequence, or of one slice of it
  std::int64_t before = 0;    // tokens of the sequence before a slice, whose keys its attention sees
  std::int64_t after = 0;     // … and behind it
  ElementType activations = ElementType::bf16;
  bool flash_attention = true;     // else all scores are made, kept, and masked afterwards
  bool composed = false;           // recurrences and expert routing of a framework's operations, not of kernels
  bool eager = false;              // activations, rotary embeddings, repeated heads: a kernel for each operation
  bool eager_norms = false;        // RMSNorm too
  bool framework_on_host = false;  // a framework's operations on a CPU, and what these need while they run
  bool dropout = false;            // on the embedding, the attention's probabilities and each branch; masks are kept
};

[[nodiscard]] std::vector<Operation> embedding_operations(const Model& model, const OperationContext& context);
[[nodiscard]] std::vector<Operation> layer_operations(const Model& model, std::size_t index,
                                                      const OperationContext& context);
// Final norm, head matmul and cross entropy.
[[nodiscard]] std::vector<Operation> head_operations(const Model& model, const OperationContext& context);
// All multi-token-prediction modules, each with its use of the shared head.
[[nodiscard]] std::vector<Operation> mtp_operations(const Model& model, const OperationContext& context);

// Attention's probabilities and what dropout leaves of them, where all scores are made: selective recompute (arXiv
// 2205.05198, section 5) frees them and makes them again from queries and keys.
[[nodiscard]] bool makes_probabilities(const Operation& operation);

struct OperationTotals {
  Flops forward = {};
  Flops input_gradient = {};
  Flops weight_gradient = {};
  double kept_bytes = 0;
  double kept_for_weight_bytes = 0;
  bool operator==(const OperationTotals&) const = default;
};

[[nodiscard]] OperationTotals totals(const std::vector<Operation>& operations);

// Mean number of keys that a query of `sequence` tokens behind `before` others sees: bidirectional all; causal, its own
// and those in front of it, of which a window w has at most w. Of a whole sequence of T tokens (T+1)/2, and with a
// window w − w(w−1)/(2T) for T ≥ w.
[[nodiscard]] double mean_keys(const SoftmaxAttention& attention, std::int64_t sequence, std::int64_t before = 0);

// Model FLOPs of one optimizer step, F + I + W over all tokens, MTP included: the numerator of MFU. Without recompute,
// also without that inside flash attention, whose core then costs I = 2 F.
[[nodiscard]] Flops model_flops(const Model& model, std::int64_t sequence, std::int64_t sequences);

}  // namespace plumb
