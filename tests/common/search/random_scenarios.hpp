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

}  // namespace plumb::testing
