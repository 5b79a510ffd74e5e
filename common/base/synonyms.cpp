#include "common/base/synonyms.hpp"

#include <algorithm>

namespace plumb {
namespace {

struct Synonym {
  std::string_view theirs;  // without capitals, with '-' in place of '_'
  std::string_view ours;
};

constexpr Synonym value_synonyms[] = {
    // Precision: PyTorch, Hugging Face.
    {"float32", "fp32"},
    {"float", "fp32"},
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    // What plumb runs as Adam is AdamW.
    {"adam", "adamw"},
    {"fusedadam", "adamw"},
    {"adamw-torch", "adamw"},
    {"adamw-torch-fused", "adamw"},
    {"adamw-hf", "adamw"},
    // Recompute: "off" in torchtitan's activation checkpointing.
    {"off", "none"},
    // … and gradient_checkpointing: true or false in Hugging Face.
    {"true", "full"},
    {"false", "none"},
    // Sharding of data-parallel ranks: FSDP's strategies, DeepSpeed's stages, Megatron-FSDP's
    // --data-parallel-sharding-strategy.
    {"ddp", "none"},
    {"no-shard", "none"},
    {"zero-0", "none"},
    {"zero-1", "zero1"},
    {"zero-2", "zero2"},
    {"zero-3", "zero3"},
    {"zeropp", "zero++"},
    {"zero-plus-plus", "zero++"},
    {"shard-grad-op", "zero2"},
    {"optim", "zero1"},
    {"optim-grads", "zero2"},
    {"optim-grads-params", "zero3"},
    {"full-shard", "fsdp"},
    {"fully-shard", "fsdp"},
    {"fsdp2", "fsdp"},
    {"hybrid-shard", "hsdp"},
    // Offload: DeepSpeed's offload_param.
    {"param", "parameters"},
    {"params", "parameters"},
    // Axes of a mesh: Megatron-LM's order, DeviceMesh's names.
    {"tp", "tensor"},
    {"cp", "context"},
    {"ep", "expert"},
    {"dp", "data"},
    {"pp", "pipeline"},
    // Schedules: torch.distributed.pipelining, and the zero-bubble papers.
    {"interleaved1f1b", "interleaved-1f1b"},
    {"interleaved", "interleaved-1f1b"},
    {"1f1b-interleaved", "interleaved-1f1b"},
    {"eager1f1b", "eager-1f1b"},
    {"interleavedzerobubble", "interleaved-zb"},
    {"loopedbfs", "breadth-first"},
    {"zbvzerobubble", "zb-v"},
    {"zbv", "zb-v"},
    {"zbh1", "zb-h1"},
    {"zb1p", "zb-h1"},
    {"zbh2", "zb-h2"},
    {"zb2p", "zb-h2"},
    {"vhalf", "v-half"},
    {"vmin", "v-min"},
    {"dualpipev", "dualpipe-v"},
    {"seq1f1b", "seq-1f1b"},
    {"bfs", "breadth-first"},
    // How slices are cut: Seq1F1B's --pipe-sp-strategy and paper (computation-wise partition).
    {"average", "tokens"},
    {"uniform-comp", "work"},
    {"cwp", "work"},
    // … PipeDream-2BW's paper, DeepSpeed (its TrainSchedule is 1F1B), and all forwards before all backwards.
    {"pipedream-flush", "1f1b"},
    {"pipedreamflush", "1f1b"},
    {"trainschedule", "1f1b"},
    {"afab", "gpipe"},
    // Activations, norms and positions: Hugging Face, Megatron-LM.
    {"silu", "swiglu"},
    {"swish", "swiglu"},
    {"gelu-tanh", "gelu"},
    {"gelu-fast", "gelu"},
    {"gelu-new", "gelu"},
    {"gelu-pytorch-tanh", "gelu"},
    {"squared-relu", "relu2"},
    {"rms-norm", "rmsnorm"},
    {"layer-norm", "layernorm"},
    {"rotary", "rope"},
    {"learned-absolute", "learned"},
    {"nope", "none"},
    // Kinds of layers: Hugging Face's layer_types.
    {"full-attention", "full"},
    {"mlp", "dense"},
    {"sliding-attention", "sliding"},
    {"linear-attention", "linear"},
    {"gated-deltanet", "linear"},
    {"sparse", "moe"},
    {"gpu", "cuda"},
};

constexpr Synonym key_synonyms[] = {
    {"pp", "pipeline"},
    {"pipeline-parallel-degree", "pipeline"},
    {"pipeline-model-parallel-size", "pipeline"},
    {"tp", "tensor"},
    {"tensor-parallel-degree", "tensor"},
    {"tensor-model-parallel-size", "tensor"},
    {"dp", "data"},
    {"data-parallel-size", "data"},
    {"data-parallel-replicate-degree", "data"},
    {"data-parallel-sharding-strategy", "sharding"},
    {"sharding-strategy", "sharding"},
    {"zero-stage", "sharding"},
    {"fsdp-reshard-after-forward", "reshard_after_forward"},
    {"forward-prefetch", "prefetch"},
    {"backward-prefetch", "prefetch"},
    {"zero-quantized-weights", "quantized_weights"},
    {"zero-hpz-partition-size", "secondary_shard"},
    {"zero-quantized-gradients", "quantized_gradients"},
    {"cp", "context"},
    {"ep", "expert"},
    {"seq-length", "sequence"},
    {"seq-len", "sequence"},
    {"sequence-length", "sequence"},
    {"max-seq-len", "sequence"},
    {"sp", "sequence_parallel"},
    {"micro-batch-size", "microbatch"},
    {"train-micro-batch-size-per-gpu", "microbatch"},
    {"local-batch-size", "microbatch"},
    {"global-batch-size", "global_batch"},
    {"train-batch-size", "global_batch"},
    {"lr", "learning_rate"},
    {"clip-grad", "gradient_clipping"},
    {"max-norm", "gradient_clipping"},
    {"max-grad-norm", "gradient_clipping"},
    {"dtype", "precision"},
    {"params-dtype", "precision"},
    {"torch-dtype", "precision"},
    {"activation-checkpoint", "recompute"},
    {"gradient-checkpointing", "recompute"},
    {"activation-checkpointing", "recompute"},
    {"recompute-granularity", "recompute"},
    // Offload: torchtitan and FSDP, DeepSpeed, Megatron-LM, torchtune.
    {"cpu-offload", "offload"},
    {"enable-cpu-offload", "offload"},
    {"offload-policy", "offload"},
    {"offload-optimizer", "offload"},
    {"offload-param", "offload"},
    {"optimizer-cpu-offload", "offload"},
    {"cpu-offloading", "offload"},
    {"enable-activation-offloading", "offload"},
    {"hidden-size", "hidden"},
    {"dim", "hidden"},
    {"n-embd", "hidden"},
    {"num-attention-heads", "heads"},
    {"n-heads", "heads"},
    {"n-head", "heads"},
    {"num-key-value-heads", "kv_heads"},
    {"num-query-groups", "kv_heads"},
    {"n-kv-heads", "kv_heads"},
    {"intermediate-size", "ffn"},
    {"ffn-hidden-size", "ffn"},
    {"moe-intermediate-size", "ffn"},
    {"moe-ffn-hidden-size", "ffn"},
    {"vocab-size", "vocabulary"},
    {"hidden-act", "activation"},
    {"normalization", "norm"},
    {"position-embedding-type", "positions"},
    {"max-position-embeddings", "max_positions"},
    {"sliding-window", "window"},
    {"window-size", "window"},
    {"tie-word-embeddings", "tied_embeddings"},
    {"num-experts", "count"},
    {"num-experts-per-tok", "top_k"},
    {"moe-router-topk", "top_k"},
    {"gpus", "ranks"},
    {"num-gpus", "ranks"},
    {"world-size", "ranks"},
    {"devices", "ranks"},
    {"nnodes", "nodes"},
    {"num-nodes", "nodes"},
    {"virtual-stages", "chunks"},
    {"pipe-sp-splits", "slices"},
    {"pipe-sp-strategy", "slices_by"},
    {"num-layers-per-virtual-pipeline-stage", "chunks"},
};

constexpr std::string_view from_others = "it follows from the others: global_batch / (microbatch × data degree)";
constexpr std::string_view no_experts = "expert parallelism is not supported yet: leave the key out";
constexpr std::string_view no_context = "context parallelism is not supported yet: leave the key out";
constexpr std::string_view layers_in_words =
    "layers: \"full/dense*32\" has 32 layers of full attention and a dense MLP";

// Keys that have no key of plumb in their place, or one that takes another kind of value.
constexpr Synonym advice[] = {
    {"bf16", "training: {precision: bf16}"},
    {"fp16", "training: {precision: fp16}"},
    {"gradient-accumulation-steps", from_others},
    {"num-micro-batches", from_others},
    {"zero-optimization", "layout: {data: {sharding: zero3}}, or zero1, zero2"},
    {"use-distributed-optimizer", "layout: {data: {sharding: zero1}}"},
    {"virtual-pipeline-model-parallel-size", "schedule: {name: interleaved-1f1b, chunks: 2}"},
    {"data-parallel-shard-degree",
     "layout: {data: {degree: 8, sharding: fsdp}}, or {kind: hsdp, shard: 8} as sharding"},
    {"expert-model-parallel-size", no_experts},
    {"expert-parallel-degree", no_experts},
    {"context-parallel-size", no_context},
    {"context-parallel-degree", no_context},
    {"num-layers", layers_in_words},
    {"num-hidden-layers", layers_in_words},
    {"n-layer", layers_in_words},
};

std::string plain(std::string_view word) {
  std::string text;
  for (const char c : word) {
    text += c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const std::string_view prefix : {"torch.", "schedule"}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  return text;
}

std::optional<std::size_t> place_of(std::string_view name, const std::vector<std::string>& names) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

std::optional<std::size_t> find_name(std::string_view word, const std::vector<std::string>& names) {
  if (const auto own = place_of(word, names)) return own;
  const std::string theirs = plain(word);
  if (const auto own = place_of(theirs, names)) return own;
  for (const Synonym& synonym : value_synonyms) {
    if (synonym.theirs != theirs) continue;
    if (const auto meant = place_of(synonym.ours, names)) return meant;
  }
  return std::nullopt;
}

std::string key_meant(std::string_view word, const std::vector<std::string>& keys) {
  const std::string theirs = plain(word);
  for (const Synonym& synonym : key_synonyms) {
    if (synonym.theirs == theirs && place_of(synonym.ours, keys)) return std::string(synonym.ours);
  }
  return "";
}

std::string advice_for_key(std::string_view word) {
  const auto found = std::ranges::find(advice, plain(word), &Synonym::theirs);
  return found == std::end(advice) ? "" : std::string(found->ours);
}

std::vector<std::string> other_names(const std::vector<std::string>& names) {
  std::vector<std::string> others;
  for (const Synonym& synonym : value_synonyms) {
    if (place_of(synonym.ours, names)) others.emplace_back(synonym.theirs);
  }
  return others;
}

std::vector<std::string> other_keys(std::string_view key) {
  std::vector<std::string> others;
  for (const Synonym& synonym : key_synonyms) {
    if (synonym.ours == key) others.emplace_back(synonym.theirs);
  }
  return others;
}

}  // namespace plumb
