// Scenarios of every kind, made up from a seed, to find those that end a program.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/common/search/random_scenarios.hpp"

namespace plumb::testing {

// Draws one value after the other, so that the text is the same with every compiler.
class AnyScenario {
 public:
  explicit AnyScenario(unsigned seed) : random_(seed) {
    pipeline_ = number({"1", "1", "2", "2", "4", "8"});
    tensor_ = number({"1", "1", "1", "2", "2", "4", "8"});
    data_ = number({"1", "2", "4", "8", "16"});
    grid_ = tensor_ >= 4 && one_in(3);
    vocabulary_ = pipeline_ > 1 && !grid_ && one_in(6);
  }

  std::string text(const std::string& memory) {
    std::string text = model() + cluster(memory) + training() + layout();
    text += "schedule: " +
            pick({"1f1b", "1f1b", "1f1b", "gpipe", "zb-h1", "zb-v", "zb-h2", "eager-1f1b", "dualpipe", "dualpipe-v",
                  "chimera", "hanayo", "bpipe", "v-half", "breadth-first", "pipedream-2bw",
                  "{name: interleaved-1f1b, chunks: auto}", "{name: seq-1f1b, slices: 2}", "[1f1b, gpipe, zb-v]"});
    text += "\nsoftware: " + pick({"plumb", "megatron-2022", "torchtitan-2025"});
    return text + "\nsplit: " + pick({"dynamic", "uniform", "auto", "parameters", "[dynamic, uniform]"}) + "\n";
  }

 private:
  std::string pick(const std::vector<std::string>& words) { return random_.one_of(words); }
  int number(const std::vector<std::string>& words) { return std::stoi(pick(words)); }
  bool one_in(int several) { return random_.number(1, several) == 1; }

  // Grids have a place for softmax attention and dense layers alone.
  std::string model() {
    const std::vector<std::string> kinds =
        grid_ ? std::vector<std::string>{"full/dense", "sliding/dense"}
              : std::vector<std::string>{"full/dense", "full/dense",  "sliding/dense",   "full/moe",  "linear/dense",
                                         "mla/dense",  "mamba2/none", "lightning/dense", "none/dense"};
    std::string text = "model: {vocabulary: " + pick({"512", "8184", "32000", "131072"});
    text += ", hidden: " + pick({"64", "256", "1024"});
    const std::string heads = pick({"4", "8", "16"});
    text += ", heads: " + heads + ", kv_heads: " + (grid_ ? heads : pick({"1", "2", heads}));
    text += ", ffn: " + pick({"128", "512", "4096"});
    text += ", tied_embeddings: " + (grid_ ? "false" : pick({"true", "false"}));
    text += ", bias: " + pick({"true", "false"});
    text += ", mtp: " + (grid_ ? "0" : pick({"0", "0", "0", "1"}));
    text += ", window: 16, experts: {count: 8, top_k: 2, ffn: 128, shared: 1}, linear: {value_heads: " + heads +
            "}, mla: {kv_lora_rank: 16, nope_dim: 16, rope_dim: 16, value_dim: 16}, mamba2: {heads: 8, head_dim: 16, "
            "state: 16, groups: 8}, layers: \"";
    for (int i = random_.number(std::max(pipeline_, 3), 12); i > 0; --i) text += pick(kinds) + (i > 1 ? ", " : "\"}\n");
    return text;
  }

  std::string cluster(const std::string& memory) {
    const std::string machine = pick({"dgx-a100", "dgx-h100", "dgx-h100", "pcie-rtx4090", "gb200-nvl72", "local-cpu"});
    const int devices = machine == "gb200-nvl72" ? 72 : 8;
    const int ranks = pipeline_ * tensor_ * data_;
    const bool cpu = machine == "local-cpu";
    std::string text = "cluster: {machine: " + machine;
    if (!cpu) text += ", nodes: " + std::to_string((ranks + devices - 1) / devices);
    if (one_in(2) || cpu || ranks % devices != 0) text += ", ranks: " + std::to_string(ranks);
    return text + memory + "}\n";
  }

  std::string training() {
    const int microbatch = number({"1", "1", "2", "4", "8"});
    const int batch = data_ * microbatch * number({"1", "2", "4", "8", "12"});
    std::string text = "training: {sequence: " + pick({"64", "96", "512"});
    if (!one_in(3)) text += ", global_batch: " + std::to_string(batch);
    text += pick({", microbatch: " + std::to_string(microbatch), ", microbatch: " + std::to_string(microbatch),
                  ", microbatch: auto", ""});
    text += ", precision: " + pick({"bf16", "bf16", "fp32"});
    text += pick({"", "", "", ", recompute: full", ", recompute: selective", ", recompute: {layers: 1}",
                  ", recompute: {every: 3}", ", recompute: auto"});
    if (!vocabulary_) {
      text += pick({"", "", "", "", "", ", offload: optimizer", ", offload: [optimizer+activations]",
                    ", offload: parameters", ", offload: auto"});
      text += pick({"", "", "", ", lora: {rank: 4, targets: all}"});
    }
    return text + pick({"", "", ", optimizer: sgd"}) + pick({"", "", ", gradient_clipping: 1"}) + "}\n";
  }

  std::string sharding() {
    if (vocabulary_) return pick({"", ", sharding: none", ", sharding: zero1"});
    const std::string group = pick({"2", "2", "4", "8", "16"});
    return pick({"",
                 ", sharding: none",
                 ", sharding: zero1",
                 ", sharding: zero2",
                 ", sharding: zero2, reduce: last_microbatch",
                 ", sharding: zero3",
                 ", sharding: fsdp",
                 ", sharding: fsdp, prefetch: 2",
                 ", sharding: fsdp, reshard_after_forward: true",
                 ", sharding: fsdp, layers_per_unit: 2",
                 ", sharding: fsdp, reshard_after_forward: false",
                 ", sharding: {kind: hsdp, shard: " + group + "}",
                 ", sharding: {kind: hsdp, shard: " + group + "}",
                 ", sharding: {kind: hsdp, replicate: 2}",
                 ", sharding: zero++",
                 ", sharding: zero++, quantized_gradients: false",
                 ", sharding: zero3, secondary_shard: " + group,
                 ", sharding: fsdp, reshard_after_forward: " + group,
                 ", sharding: zero3, quantized_gradients: " + group,
                 ", sharding: zero3, quantized_weights: true",
                 ", sharding: auto",
                 ", sharding: [none, zero1, {kind: hsdp, shard: " + group + "}]"});
  }

  std::string layout() {
    if (one_in(20)) return "layout: auto\n";
    std::string text = "layout: {pipeline: " + std::to_string(pipeline_) + ", tensor: {degree: ";
    text += std::to_string(tensor_);
    if (grid_) text += tensor_ == 4 ? ", kind: 2d" : pick({", kind: 2.5d, depth: 2", ", kind: 3d"});
    if (!grid_ && tensor_ > 1) {
      text += pick({"", "", ", sequence_parallel: true", ", sequence_parallel: true, asynchronous: true",
                    ", sequence_parallel: auto"});
    }
    text += "}, data: {";
    text += one_in(20) ? "by_stage: " + pick({"auto", pipeline_ == 4 ? "[1, 2, 2, 1]" : "[2, 1]"})
                       : "degree: " + std::to_string(data_) + sharding();
    text += "}";
    if (vocabulary_) text += ", vocabulary: {over: pipeline, barriers: " + pick({"1", "2"}) + "}";
    return text + pick({"", "", "", ", order: [data, tensor, pipeline]"}) + "}\n";
  }

  RandomText random_;
  int pipeline_ = 1;
  int tensor_ = 1;
  int data_ = 1;
  bool grid_ = false;
  bool vocabulary_ = false;  // over the pipeline
};

// Most of them can be planned; the reader or the planner refuses the rest. `memory` is a key of the cluster, with a
// comma before it.
inline std::string any_scenario(unsigned seed, const std::string& memory) { return AnyScenario(seed).text(memory); }

// A limit near the need, from a fifth of it to a little more.
inline std::string tight_memory(Bytes needed, unsigned seed) {
  constexpr std::array<double, 7> factors = {0.2, 0.5, 0.8, 0.95, 0.999, 1, 1.01};
  const double bytes = static_cast<double>(needed.value) * factors.at(seed % factors.size());
  return ", " + memory_line(Bytes{std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes))});
}

inline const std::string ample_memory = ", memory: 1000 TiB";

}  // namespace plumb::testing
