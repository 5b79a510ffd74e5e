#include "common/model/operation_list.hpp"

namespace plumb {
namespace {

// FlashAttention-2, arXiv 2307.08691: two matmuls per key forward, five backward (one of them redoes the scores).
CoreFlops flash_flops(double heads, double head_dim, double value_dim, double keys) {
  return {.forward = 2 * heads * (head_dim + value_dim) * keys,
          .backward = 2 * heads * (3 * head_dim + 2 * value_dim) * keys};
}

void add(OperationList&, const std::monostate&) {}

void add(OperationList& list, const SoftmaxAttention& attention) {
  const double heads = real(attention.heads);
  const double head_dim = real(attention.head_dim);
  const double value_dim = real(attention.value_dim);
  const double kv_heads = real(attention.kv_heads);
  const double out = heads * value_dim;
  list.matmul("attention.q");
  list.matmul("attention.k");
  list.matmul("attention.v");
  if (attention.qk_norm) {
    list.pass("attention.qk_norm", OperationKind::norm,
              {.until_input_gradient = (heads + kv_heads) * (list.element() * head_dim + fp32_bytes)});
  }
  // q, k, v, the output, and the logarithm of each row's sum.
  Operation& core =
      list.core("attention.core", OperationKind::attention,
                flash_flops(heads, head_dim, value_dim, mean_keys(attention, list.tokens())),
                {.until_input_gradient =
                     list.element() * (heads * head_dim + kv_heads * (head_dim + value_dim) + out) + fp32_bytes * heads,
                 .until_weight_gradient = attention.output_gate ? 0 : list.element() * out});
  core.message = {.axis = OperationMessage::Axis::context,
                  .collective = OperationMessage::Collective::all_gather,
                  .bytes_per_token = list.element() * kv_heads * (head_dim + value_dim)};
  if (attention.output_gate) {
    list.matmul("attention.gate");
    list.pass("attention.gate.product", OperationKind::elementwise,
              {.until_input_gradient = 2 * list.element() * out, .until_weight_gradient = list.element() * out});
  }
  list.matmul("attention.out").message = reduced_over_tensor(list.element() * list.hidden());
}

// Keys are materialised per head, as training kernels do.
void add(OperationList& list, const LatentAttention& attention) {
  const double element = list.element();
  const double heads = real(attention.heads);
  const double head_dim = real(attention.nope_dim + attention.rope_dim);
  const double value_dim = real(attention.value_dim);
  const double rank = real(attention.kv_lora_rank);
  const double rope = real(attention.rope_dim);
  if (attention.q_lora_rank) {
    const double query_rank = real(*attention.q_lora_rank);
    list.matmul("attention.q_down");
    list.pass(
        "attention.q_norm", OperationKind::norm,
        {.until_input_gradient = 2 * element * query_rank + fp32_bytes, .until_weight_gradient = element * query_rank});
    list.matmul("attention.q_up");
  } else {
    list.matmul("attention.q");
  }
  list.matmul("attention.kv_down");
  list.pass(
      "attention.kv_norm", OperationKind::norm,
      {.until_input_gradient = element * (2 * rank + rope) + fp32_bytes, .until_weight_gradient = element * rank});
  list.matmul("attention.kv_up");
  const double keys = mean_keys(SoftmaxAttention{}, list.tokens());
  Operation& core =
      list.core("attention.core", OperationKind::attention, flash_flops(heads, head_dim, value_dim, keys),
                {.until_input_gradient = element * heads * 2 * (head_dim + value_dim) + fp32_bytes * heads,
                 .until_weight_gradient = element * heads * value_dim});
  core.message = {.axis = OperationMessage::Axis::context,
                  .collective = OperationMessage::Collective::all_gather,
                  .bytes_per_token = element * (rank + rope)};
  list.matmul("attention.out").message = reduced_over_tensor(element * list.hidden());
}

void add(OperationList& list, const GatedDelta& delta) { add_recurrence(list, delta); }
void add(OperationList& list, const ChannelGatedDelta& delta) { add_recurrence(list, delta); }
void add(OperationList& list, const Lightning& lightning) { add_recurrence(list, lightning); }
void add(OperationList& list, const Mamba& mamba) { add_recurrence(list, mamba); }
void add(OperationList& list, const Mamba2& mamba) { add_recurrence(list, mamba); }

}  // namespace

void add_mixer(OperationList& list, const Mixer& mixer) {
  std::visit([&](const auto& kind) { add(list, kind); }, mixer);
}

}  // namespace plumb
