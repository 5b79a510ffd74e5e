#include "common/model/operation_list.hpp"

namespace plumb {
namespace {

// What the activation function keeps: gate, up and their product, or input and output; the last one is the input of the
// down projection. Eager, the activated gate stands beside them.
KeptBytes activation_bytes(const OperationList& list, Activation activation, double width) {
  const int gated = list.context().eager ? 4 : 3;
  return {.until_input_gradient = (is_gated(activation) ? gated : 2) * list.element() * width,
          .until_weight_gradient = list.element() * width,
          .as_input = list.element() * width};
}

// Reads gate and up, or the input, and writes the output; I reads them and the output's gradient and writes theirs.
// Eager, the activation of the gate (2 elements, its gradient 3) and the product (3, its gradients 3 each) are apart.
OperationList::Elements activation_elements(const OperationList& list, Activation activation, double width) {
  if (!is_gated(activation)) return {2 * width, 3 * width};
  return list.context().eager ? OperationList::Elements{5 * width, 9 * width}
                              : OperationList::Elements{3 * width, 5 * width};
}

void add_activation(OperationList& list, const std::string& name, Activation activation, double width) {
  list.pass(name, OperationKind::elementwise, activation_elements(list, activation, width),
            activation_bytes(list, activation, width));
}

void add_kind(OperationList&, const std::monostate&) {}

void add_kind(OperationList& list, const DenseMlp& mlp) {
  if (is_gated(mlp.activation)) list.matmul("mlp.gate");
  list.matmul("mlp.up");
  add_activation(list, "mlp.activation", mlp.activation, real(mlp.width));
  list.matmul_of_latest("mlp.down");
}

// The shared experts see every token. Their gate (Qwen3-Next) keeps itself and what it scales.
void add_shared(OperationList& list, const MoeMlp& moe) {
  const bool gated = is_gated(moe.activation);
  if (gated) list.matmul("mlp.shared.gate");
  list.matmul("mlp.shared.up");
  add_activation(list, "mlp.shared.activation", moe.activation, real(moe.shared_width));
  list.matmul_of_latest("mlp.shared.down");
  if (!moe.shared_gate) return;
  list.matmul("mlp.shared_gate");
  list.pass("mlp.shared_gate.product", OperationKind::elementwise, {2 * list.hidden(), 4 * list.hidden()},
            {.until_input_gradient = list.element() * (list.hidden() + 1)});
}

// Fused permute and combine. Where the shares are made of a framework's operations (exec/stage/modules/moe.cpp) the
// chosen probabilities and their sum are kept too, and the shares themselves in fp32. Kept: fp32 routing probabilities;
// per choice its weight, three index arrays, the dispatched input, and the expert's output, which the gradient of the
// routing weight needs.
void add_kind(OperationList& list, const MoeMlp& moe) {
  const double chosen = real(moe.top_k);
  const double dispatched = chosen * list.element() * list.hidden();
  const double copies = chosen * list.hidden();
  list.matmul("mlp.router");
  list.pass("mlp.route", OperationKind::routing, {3 * real(moe.experts), 3 * real(moe.experts)},
            {.until_input_gradient = fp32_bytes * real(moe.experts) + chosen * (3 * index_bytes + list.element())});
  list.pass("mlp.dispatch", OperationKind::routing, {2 * copies, copies + list.hidden()},
            {.until_input_gradient = dispatched, .until_weight_gradient = dispatched, .as_input = dispatched});
  if (is_gated(moe.activation)) list.matmul("mlp.experts.gate", moe.top_k).input = "mlp.dispatch";
  list.matmul("mlp.experts.up", moe.top_k).input = "mlp.dispatch";
  add_activation(list, "mlp.experts.activation", moe.activation, chosen * real(moe.width));
  list.matmul_of_latest("mlp.experts.down", moe.top_k);
  if (list.context().composed) {
    list.pass("mlp.shares", OperationKind::routing, {},
              {.until_input_gradient = fp32_bytes * (chosen + 1) + (fp32_bytes - list.element()) * chosen})
        .site = "mlp.route";
  }
  list.pass("mlp.combine", OperationKind::routing, {copies + list.hidden(), 3 * copies},
            {.until_input_gradient = dispatched});
  if (moe.shared_width > 0) add_shared(list, moe);
}

}  // namespace

void add_mlp(OperationList& list, const Mlp& mlp) {
  std::visit([&](const auto& kind) { add_kind(list, kind); }, mlp);
}

}  // namespace plumb
