// A complete plan of a tiny model that trains in milliseconds, as `plumb plan` would settle it.
#pragma once

#include <string>

#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "tests/exec/temporary_folder.hpp"

namespace plumb::exec {

struct TinyPlan {
  int ranks = 2;
  int microbatches = 4;
  std::string schedule = "1f1b";
  bool tied = false;
  std::string more_of_training = "";  // ", lora: {rank: 2}"
  int data = 1;                       // pipelines of `ranks` side by side; microbatches are those of each
  std::string more_of_data = "";      // ", sharding: fsdp"
  // Of half as many layers, of the same kinds: where there are at most four stages.
  bool shallow = false;
  int tensor = 1;  // ranks that divide each stage
  bool sequence_parallel = false;
  int heads = 2;          // of 16 hidden features
  std::string grid = "";  // ", kind: 2d": dense layers of full attention alone, microbatches of two sequences
};

inline Plan tiny_plan(const TinyPlan& wanted) {
  const int microbatch = wanted.grid.empty() ? 1 : 2;
  const std::string layers = !wanted.grid.empty() ? "full/dense*8"
                             : wanted.shallow     ? "full/dense*2, sliding/moe, linear/dense"
                                                  : "full/dense*4, sliding/moe*2, linear/dense*2";
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "tiny.yaml", "model:\n  {name: tiny, vocabulary: 256, hidden: 16, heads: " + std::to_string(wanted.heads) +
                       ", ffn: 32, window: 8, tied_embeddings: " + std::string(wanted.tied ? "true" : "false") +
                       ",\n   experts: {count: 2, top_k: 1, ffn: 16}, layers: \"" + layers +
                       "\"}\n"
                       "cluster: {machine: local-cpu, ranks: " +
                       std::to_string(wanted.ranks * wanted.data * wanted.tensor) +
                       "}\n"
                       "training: {sequence: 16, global_batch: " +
                       std::to_string(wanted.microbatches * wanted.data * microbatch) +
                       ", microbatch: " + std::to_string(microbatch) + ", precision: fp32" + wanted.more_of_training +
                       "}\n"
                       "layout: {pipeline: " +
                       std::to_string(wanted.ranks) + ", data: {degree: " + std::to_string(wanted.data) +
                       wanted.more_of_data + "}, tensor: {degree: " + std::to_string(wanted.tensor) +
                       ", sequence_parallel: " + (wanted.sequence_parallel ? "true" : "false") + wanted.grid + "}}\n" +
                       "schedule: {name: " + wanted.schedule +
                       (wanted.schedule == "interleaved-1f1b" ? ", chunks: 2" : "") + "}\nsplit: uniform\n");
  const Scenario scenario = read_scenario(path);
  return make_plan(
      scenario, {.microbatch = microbatch, .schedule = scenario.schedules.front(), .split = scenario.splits.front()});
}

}  // namespace plumb::exec
