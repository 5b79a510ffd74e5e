// Small scenarios with much left open, made up from a seed: spaces that can be searched by weighing all of them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "common/planner/planner.hpp"
#include "tests/common/plan/scenarios.hpp"

namespace plumb::testing {

class RandomText {
 public:
  explicit RandomText(unsigned seed) : random_(seed) {}
  int number(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  std::string one_of(const std::vector<std::string>& words) {
    return words[static_cast<std::size_t>(number(0, static_cast<int>(words.size()) - 1))];
  }

 private:
  std::mt19937 random_;
};

// Four or eight ranks, layers of several kinds, degrees, orders, microbatches, schedules and recompute left open.
// `memory` per rank, empty: the device's own.
inline std::string random_scenario(unsigned seed, const std::string& memory = "") {
  RandomText random(seed);
  std::string layers;
  for (int i = random.number(4, 7); i > 0; --i) {
    layers += random.one_of({"full/dense", "sliding/dense", "full/moe", "none/dense"}) + (i > 1 ? ", " : "");
  }
  const std::string tied = random.one_of({"true", "false"});
  return "model:\n  name: small\n  vocabulary: " + random.one_of({"512", "8192"}) +
         "\n  hidden: 64\n  heads: 4\n  kv_heads: 2\n  ffn: 128\n  window: 16\n  tied_embeddings: " + tied +
         "\n  experts: {count: 4, top_k: 2, ffn: 128, shared: 1}\n  layers: \"" + layers +
         "\"\ncluster: {machine: dgx-a100, ranks: " + random.one_of({"4", "8"}) + memory +
         "}\ntraining: {sequence: 256," + " global_batch: 8, microbatch: " + random.one_of({"auto", "[1, 2]"}) +
         ", recompute: " + random.one_of({"auto", "none", "[none, full]"}) + "}\nlayout: " +
         random.one_of({"auto", "{pipeline: auto, data: auto}", "{tensor: auto, data: {degree: [1, 2]}}",
                        "{order: auto, pipeline: [2, 4], data: auto, tensor: {degree: auto}}"}) +
         "\nschedule: " +
         random.one_of({"[1f1b, zb-h1]", "[gpipe, {name: interleaved-1f1b, chunks: auto}]", "[eager-1f1b, 1f1b]",
                        "[zb-v, 1f1b]"}) +
         "\nsoftware: " + random.one_of({"megatron-2022", "plumb"}) +
         "\nsplit: " + random.one_of({"dynamic", "auto", "[dynamic, uniform]", "parameters"}) + "\n";
}

// Whether pipelines divide the vocabulary is left open. Some leave recompute and what is offloaded open beside it. Of
// 8,184 tokens (2³·3·11·31) no pipeline of 16 divides.
inline std::string random_vocabularies(unsigned seed, const std::string& memory = "") {
  RandomText random(seed);
  std::string layers;
  for (int i = random.number(4, 9); i > 0; --i) {
    layers += random.one_of({"full/dense", "sliding/dense", "full/moe"}) + (i > 1 ? ", " : "");
  }
  // One after the other, so that the draws are the same with every compiler.
  const std::string vocabulary = random.one_of({"512", "8184", "65536"});
  const std::string tied = random.one_of({"true", "false"});
  const std::string machine = random.one_of({"dgx-a100", "pcie-rtx4090"});
  const std::string ranks = random.one_of({"4", "8", "16"});
  const std::string batch = random.one_of({"16", "64"});
  const std::string recompute = random.one_of({"none", "[none, full]", "[full, {layers: 1}]"});
  const std::string offload = random.one_of({"none", "none", "[none, optimizer]"});
  const std::string tensor =
      random.one_of({"1", "auto", "[1, 2], sequence_parallel: auto", "2, sequence_parallel: true"});
  const std::string sharding = random.one_of({"none", "[zero1, fsdp]"});
  const std::string schedule = random.one_of({"[1f1b, zb-h1]", "[gpipe, 1f1b]", "1f1b"});
  const std::string software = random.one_of({"megatron-2022", "plumb"});
  const std::string split = random.one_of({"dynamic", "[dynamic, uniform]"});
  return "model: {vocabulary: " + vocabulary + ", tied_embeddings: " + tied +
         ", hidden: 128, heads: 4, kv_heads: 2, ffn: 512, window: 16, experts: {count: 4, top_k: 2, ffn: 128}, "
         "layers: \"" +
         layers + "\"}\ncluster: {machine: " + machine + ", nodes: 4, ranks: " + ranks + memory +
         "}\ntraining: {sequence: 256, global_batch: " + batch + ", microbatch: [1, 2], recompute: " + recompute +
         ", offload: " + offload + "}\nlayout: {pipeline: auto, tensor: {degree: " + tensor +
         "}, data: {degree: auto, sharding: " + sharding + "}, vocabulary: auto}\nschedule: " + schedule +
         "\nsoftware: " + software + "\nsplit: " + split + "\n";
}

}  // namespace plumb::testing
