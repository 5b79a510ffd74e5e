#include "common/model/operation_list.hpp"

namespace plumb {
namespace {

// What the activation function keeps: gate, up and their product, or input and output; the last one is the input of the
// down projection.
KeptBytes activation_bytes(const OperationList& list, Activation activation, double width) {
  return {.until_input_gradient = (is_gated(activation) ? 3 : 2) * list.element() * width,
          .until_weight_gradient = list.element() * width};
}

void add(OperationList&, const std::monostate&) {}

void add(OperationList& list, const DenseMlp& mlp) {
  if (is_gated(mlp.activation)) list.matmul("mlp.gate");
  list.matmul("mlp.up");
  list.pass("mlp.activation", OperationKind::elementwise, activation_bytes(list, mlp.activation, real(mlp.width)));
  list.matmul("mlp.down").message = reduced_over_tensor(list.element() * list.hidden());
}

// The shared experts see every token. Their gate (Qwen3-Next) keeps itself and what it scales.
void add_shared(OperationList& list, const MoeMlp& moe) {
  const bool gated = is_gated(moe.activation);
  if (gated) list.matmul("mlp.shared.gate");
  list.matmul("mlp.shared.up");
  list.pass("mlp.shared.activation", OperationKind::elementwise,
            activation_bytes(list, moe.activation, real(moe.shared_width)));
  list.matmul("mlp.shared.down").message = reduced_over_tensor(list.element() * list.hidden());
  if (!moe.shared_gate) return;
  list.matmul("mlp.shared_gate");
  list.pass("mlp.shared_gate.product", OperationKind::elementwise,
            {.until_input_gradient = list.element() * (list.hidden() + 1)});
}

// Fused permute and combine. Kept: fp32 routing probabilities; per choice its weight, three index arrays, the
// dispatched input, and the expert's output, which the gradient of the routing weight needs.
void add(OperationList& list, const MoeMlp& moe) {
  const double chosen = real(moe.top_k);
  const double dispatched = chosen * list.element() * list.hidden();
  const OperationMessage exchange = {.axis = OperationMessage::Axis::expert,
                                     .collective = OperationMessage::Collective::all_to_all,
                                     .bytes_per_token = dispatched};
  list.matmul("mlp.router");
  list.pass("mlp.route", OperationKind::routing,
            {.until_input_gradient = fp32_bytes * real(moe.experts) + chosen * (3 * index_bytes + list.element())});
  list.pass("mlp.dispatch", OperationKind::routing,
            {.until_input_gradient = dispatched, .until_weight_gradient = dispatched})
      .message = exchange;
  if (is_gated(moe.activation)) list.matmul("mlp.experts.gate", moe.top_k);
  list.matmul("mlp.experts.up", moe.top_k);
  list.pass("mlp.experts.activation", OperationKind::elementwise,
            activation_bytes(list, moe.activation, chosen * real(moe.width)));
  list.matmul("mlp.experts.down", moe.top_k);
  list.pass("mlp.combine", OperationKind::routing, {.until_input_gradient = dispatched}).message = exchange;
  if (moe.shared_width > 0) add_shared(list, moe);
}

}  // namespace

void add_mlp(OperationList& list, const Mlp& mlp) {
  std::visit([&](const auto& kind) { add(list, kind); }, mlp);
}

}  // namespace plumb
