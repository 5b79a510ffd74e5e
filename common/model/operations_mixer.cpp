#include <algorithm>

#include "common/model/operation_list.hpp"

namespace plumb {
namespace {

constexpr const char* softmax_name = "attention.softmax";
constexpr const char* dropout_name = "attention.dropout";
constexpr const char* core_name = "attention.core";

// With all scores made (arXiv 2205.05198, section 4.1): both products over all keys up to the end of the sequence or
// slice, masked or not; kept are queries, keys and values, the probabilities (5as² with dropout: also the mask, and
// what it leaves), and the output. Streams of Megatron-LM's kernels: the masked softmax reads and writes, its gradient
// reads both; the permutes of the heads' order.
void add_unfused_core(OperationList& list, const SoftmaxAttention& attention) {
  const double element = list.element();
  const double heads = real(attention.heads);
  const double keys = real(list.keys());
  const double out = heads * real(attention.value_dim);
  const double projected =
      heads * real(attention.head_dim) + real(attention.kv_heads * (attention.head_dim + attention.value_dim));
  const auto product = [&](const char* name, std::int64_t outputs, std::int64_t inputs, double kept) {
    const Flops flops = {2 * heads * real(outputs) * real(inputs)};
    list.add({.name = name,
              .kind = OperationKind::attention_matmul,
              .forward = flops,
              .input_gradient = 2 * flops,
              .kept_bytes = kept,
              .shape = {.outputs = outputs, .inputs = inputs, .matrices = attention.heads},
              .site = core_name});
  };
  product("attention.scores", list.keys(), attention.head_dim, element * projected);
  list.pass(softmax_name, OperationKind::elementwise, {1.5 * heads * keys, 3 * heads * keys},
            {.until_input_gradient = element * heads * keys})
      .site = core_name;
  if (list.context().dropout) {
    list.pass(dropout_name, OperationKind::elementwise, {2.5 * heads * keys, 2.5 * heads * keys},
              {.until_input_gradient = (element + 1) * heads * keys})
        .site = core_name;
  }
  product("attention.context", attention.value_dim, list.keys(), 0);
  list.pass("attention.permute", OperationKind::elementwise, {2 * out, 2 * projected},
            {.until_input_gradient = element * out,
             .until_weight_gradient = attention.output_gate ? 0 : element * out,
             .as_input = attention.output_gate ? 0 : element * out})
      .site = core_name;
}

// FlashAttention-2, arXiv 2307.08691: two matmuls per key forward, five backward (one of them redoes the scores).
CoreFlops flash_flops(double heads, double head_dim, double value_dim, double keys) {
  return {.forward = 2 * heads * (head_dim + value_dim) * keys,
          .backward = 2 * heads * (3 * head_dim + 2 * value_dim) * keys};
}

// LibTorch's fused attention on the host hides keys behind a window by a mask. A slice goes over the keys before it
// piece by piece: its own, or at most as many as stand there and the window has.
double mask_bytes(const OperationList& list, const SoftmaxAttention& attention) {
  const std::int64_t tokens = list.tokens();
  const std::int64_t window = attention.window.value_or(list.keys());
  if (!list.context().framework_on_host || window >= list.keys()) return 0;
  return list.element() * real(tokens) * real(tokens > window ? tokens : std::min(window - 1, list.context().before));
}

// LibTorch's fused attention on the host works on tiles of queries and keys: scores and their gradients in fp32, and of
// 16-bit values once more as these (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp, `size_per_thread` of the
// backward).
double tile_bytes(const OperationList& list) {
  if (!list.context().framework_on_host) return 0;
  const std::int64_t tokens = list.tokens();
  const std::int64_t queries = std::min<std::int64_t>(tokens, tokens >= 768 ? 256 : tokens >= 192 ? 64 : 32);
  const std::int64_t keys = std::min<std::int64_t>(list.keys(), 512);
  const double narrow = list.element() < fp32_bytes ? list.element() : 0;
  return 2 * (fp32_bytes + narrow) * real(queries) * real(keys);
}

// Elements read and written for each that is rotated, as many in I. Eager, Llama's apply_rotary_emb: a copy in fp32,
// its product with complex numbers, a copy back.
OperationList::Elements rotary_elements(const OperationList& list, double rotated) {
  if (!list.context().eager) return {2 * rotated, 2 * rotated};
  const double copies = list.element() < fp32_bytes ? 2 * (list.element() + fp32_bytes) : 0;
  const double each = (copies + 2 * fp32_bytes) / list.element();
  return {each * rotated, each * rotated};
}

// Eager, a framework's attention gets keys and values of each query's head: copies of those that heads share, which it
// keeps; I adds up their gradients.
void add_repeat(OperationList& list, const SoftmaxAttention& attention) {
  if (!list.context().eager || attention.kv_heads == attention.heads) return;
  const double size = real(attention.head_dim + attention.value_dim);
  const double all = real(attention.heads + attention.kv_heads) * size;
  list.pass("attention.repeat", OperationKind::elementwise, {all, all},
            {.until_input_gradient = list.element() * real(attention.heads - attention.kv_heads) * size})
      .site = core_name;
}

void add(OperationList&, const std::monostate&) {}

void add(OperationList& list, const SoftmaxAttention& attention) {
  const double heads = real(attention.heads);
  const double head_dim = real(attention.head_dim);
  const double value_dim = real(attention.value_dim);
  const double kv_heads = real(attention.kv_heads);
  const double out = heads * value_dim;
  const double queries_and_keys = (heads + kv_heads) * head_dim;
  list.matmul("attention.q");
  list.matmul("attention.k");
  list.matmul("attention.v");
  if (attention.qkv_bias) {
    list.pass("attention.bias", OperationKind::elementwise, {queries_and_keys + kv_heads * value_dim, 0}, {});
  }
  if (attention.qk_norm) {
    list.pass("attention.qk_norm", OperationKind::norm, {2 * queries_and_keys, 5 * queries_and_keys},
              {.until_input_gradient = (heads + kv_heads) * (list.element() * head_dim + fp32_bytes)});
  }
  if (list.has_rotary()) {
    list.pass("attention.rotary", OperationKind::elementwise, rotary_elements(list, queries_and_keys), {});
  }
  add_repeat(list, attention);
  if (list.context().flash_attention) {
    // q, k, v, the output, and the logarithm of each row's sum.
    list.core("attention.core", OperationKind::attention,
              flash_flops(heads, head_dim, value_dim, mean_keys(attention, list.tokens(), list.context().before)),
              {.until_input_gradient =
                   list.element() * (heads * head_dim + kv_heads * (head_dim + value_dim) + out) + fp32_bytes * heads,
               .until_weight_gradient = attention.output_gate ? 0 : list.element() * out})
        .workspace_bytes = mask_bytes(list, attention) + tile_bytes(list);
  } else {
    add_unfused_core(list, attention);
  }
  if (attention.output_gate) {
    list.matmul("attention.gate");
    const bool eager = list.context().eager;  // sigmoid and product apart, as a gated MLP's activation
    list.pass("attention.gate.product", OperationKind::elementwise,
              {eager ? 5 * out : 3 * out, eager ? 9 * out : 5 * out},
              {.until_input_gradient = (eager ? 3 : 2) * list.element() * out,
               .until_weight_gradient = list.element() * out,
               .as_input = list.element() * out});
  }
  list.matmul_of_latest("attention.out");
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
    list.pass("attention.q_norm", OperationKind::norm, {2 * query_rank, 5 * query_rank},
              {.until_input_gradient = 2 * element * query_rank + fp32_bytes,
               .until_weight_gradient = element * query_rank,
               .as_input = element * query_rank});
    list.matmul("attention.q_up").input = "attention.q_norm";
  } else {
    list.matmul("attention.q");
  }
  list.matmul("attention.kv_down");
  list.pass("attention.kv_norm", OperationKind::norm, {2 * rank, 5 * rank},
            {.until_input_gradient = element * (2 * rank + rope) + fp32_bytes,
             .until_weight_gradient = element * rank,
             .as_input = element * rank});
  list.matmul("attention.kv_up").input = "attention.kv_norm";
  list.pass("attention.rotary", OperationKind::elementwise, rotary_elements(list, (heads + 1) * rope), {});
  const double keys = mean_keys(SoftmaxAttention{}, list.tokens(), list.context().before);
  list.core("attention.core", OperationKind::attention, flash_flops(heads, head_dim, value_dim, keys),
            {.until_input_gradient = element * heads * 2 * (head_dim + value_dim) + fp32_bytes * heads,
             .until_weight_gradient = element * heads * value_dim});
  list.matmul_of_latest("attention.out");
}

void add(OperationList& list, const GatedDelta& delta) { add_recurrence(list, delta); }
void add(OperationList& list, const ChannelGatedDelta& delta) { add_recurrence(list, delta); }
void add(OperationList& list, const Lightning& lightning) { add_recurrence(list, lightning); }
void add(OperationList& list, const Mamba& mamba) { add_recurrence(list, mamba); }
void add(OperationList& list, const Mamba2& mamba) { add_recurrence(list, mamba); }

}  // namespace

bool makes_probabilities(const Operation& operation) {
  return operation.name == softmax_name || operation.name == dropout_name;
}

void add_mixer(OperationList& list, const Mixer& mixer) {
  std::visit([&](const auto& kind) { add(list, kind); }, mixer);
}

}  // namespace plumb
