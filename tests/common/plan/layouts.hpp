// Plans over several axes, that tests of all ranks share.
#pragma once

#include <string>

#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "tests/common/plan/scenarios.hpp"

namespace plumb::testing {

// Eight layers on machines of eight devices, so large that no message is lost in rounding.
struct LayoutCase {
  std::string machine = "dgx-a100";
  int nodes = 1;
  int pipeline = 2;
  int tensor = 1;
  int data = 1;
  bool sequence_parallel = false;
  std::string kind = "1d";
  int depth = 1;
  int microbatch = 1;
  std::string schedule = "1f1b";
  std::string software = "plumb";
  std::string recompute = "none";
  int batch = 16;
  std::string network = "";  // more of the cluster
  bool tied = false;
  std::string sharding = "none";
  std::string order = "tensor, data, pipeline";
  std::string training = "";  // more of the training
  bool asynchronous = false;
  int vocabulary_barriers = 0;  // of one over the pipeline
};

inline Plan plan_of(const LayoutCase& c) {
  const auto text = [](int number) { return std::to_string(number); };
  const Scenario scenario = read_text(
      "model: {vocabulary: 1024, hidden: 1024, heads: 16, ffn: 4096, layers: \"full/dense*8\", tied_embeddings: " +
      std::string(c.tied ? "true" : "false") + "}\ncluster: {machine: " + c.machine + ", nodes: " + text(c.nodes) +
      ", ranks: " + text(c.pipeline * c.tensor * c.data) + c.network +
      "}\n"
      "training: {sequence: 512, microbatch: " +
      text(c.microbatch) + ", precision: bf16, global_batch: " + text(c.batch * c.data) +
      ", recompute: " + c.recompute + c.training +
      "}\n"
      "layout: {order: [" +
      c.order + "], pipeline: " + text(c.pipeline) + ", tensor: {degree: " + text(c.tensor) +
      ", sequence_parallel: " + (c.sequence_parallel ? "true" : "false") +
      ", asynchronous: " + (c.asynchronous ? "true" : "false") + ", kind: " + c.kind + ", depth: " + text(c.depth) +
      "}, data: {degree: " + text(c.data) + ", sharding: " + c.sharding + "}" +
      (c.vocabulary_barriers > 0 ? ", vocabulary: {over: pipeline, barriers: " + text(c.vocabulary_barriers) + "}"
                                 : "") +
      "}\n"
      "schedule: " +
      c.schedule + "\nsoftware: " + c.software + "\nsplit: uniform\n");
  return make_plan(scenario, only_choice(scenario));
}

}  // namespace plumb::testing
