// All ranks of a layout through SimGrid, every layer's collectives as flows: GPT-3 175B.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/base/files.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "sim/platform.hpp"
#include "sim/predict.hpp"
#include "sim/runner.hpp"

namespace plumb::bench {
namespace {

// arXiv 2005.14165, table 2.1, with Megatron-LM's vocabulary; DGX A100s.
Plan gpt3(int pipeline, int data, int microbatches) {
  const auto text = [](int number) { return std::to_string(number); };
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("plumb_bench" + text(::getpid()) + ".yaml");
  write_file(path,
             "model: {vocabulary: 51200, hidden: 12288, heads: 96, ffn: 49152, layers: \"full/dense*96\",\n"
             "  activation: gelu, norm: layernorm, bias: true, positions: learned, max_positions: 2048,\n"
             "  tied_embeddings: true}\n"
             "cluster: {machine: dgx-a100, nodes: " +
                 text(pipeline * data) +
                 "}\n"
                 "training: {sequence: 2048, precision: bf16, global_batch: " +
                 text(microbatches * data) +
                 ", microbatch: 1, recompute: full}\n"
                 "layout: {pipeline: " +
                 text(pipeline) + ", tensor: {degree: 8, sequence_parallel: true}, data: {degree: " + text(data) +
                 "}}\n"
                 "schedule: 1f1b\nsoftware: megatron-2022\nsplit: uniform\n");
  const Scenario scenario = read_scenario(path);
  std::filesystem::remove(path);
  return make_plan(scenario, {scenario.microbatches.front(), scenario.schedules.front(), scenario.splits.front()});
}

void unfolded(benchmark::State& state, int pipeline, int data, int microbatches) {
  const Plan plan = gpt3(pipeline, data, microbatches);
  std::size_t nodes = 0;
  std::size_t flows = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(unfolded_timeline(plan, "simgrid", [&](const ScheduleGraph& all) {
      nodes = all.nodes.size();
      flows = 0;
      for (const Node& node : all.nodes) {
        if (node.group >= 0) flows += all.groups[static_cast<std::size_t>(node.group)].size();
      }
      return sim::simulate(all, sim::platform_of(plan.cluster, plan.costs, all.ranks));
    }));
  }
  state.counters["nodes"] = static_cast<double>(nodes);
  state.counters["flows"] = static_cast<double>(flows);
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(nodes + flows), benchmark::Counter::kIsIterationInvariantRate);
}

// From its layout to its timeline, as a search has it simulated.
void folded_candidate(benchmark::State& state, int pipeline, int data, int microbatches) {
  const Plan plan = gpt3(pipeline, data, microbatches);
  const Evaluator evaluator = sim::find_engine("simgrid");
  for (auto _ : state) benchmark::DoNotOptimize(evaluator(plan));
}

BENCHMARK_CAPTURE(unfolded, 64_ranks_64_microbatches, 8, 1, 64)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(unfolded, 1024_ranks_64_microbatches, 16, 8, 64)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(folded_candidate, 64_ranks_64_microbatches, 8, 1, 64)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(folded_candidate, 16384_ranks_64_microbatches, 16, 128, 64)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace plumb::bench
