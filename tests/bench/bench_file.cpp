// From a plan's file to its timeline in memory: what `plumb simulate` does without writing.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/files.hpp"
#include "sim/predict.hpp"
#include "tests/bench/pipeline.hpp"

namespace plumb::bench {
namespace {

// One layer a stage, one sequence of one token a microbatch; the times and sizes are those of `costs()`.
Plan large_plan(bool even_stages) {
  const Layer layer{.mixer = SoftmaxAttention{.heads = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 8},
                    .mlp = DenseMlp{.width = 8}};
  Plan plan{.name = "bench"};
  plan.model = {.name = "bench", .vocabulary = 8, .hidden = 8};
  plan.model.layers.assign(static_cast<std::size_t>(shape.ranks), layer);
  plan.training = {.sequence = 1, .global_batch = shape.microbatches};
  plan.layout.pipeline = shape.ranks;
  plan.cluster = {.machine = {.name = "bench", .devices = 8}, .nodes = 8, .ranks = shape.ranks};
  plan.split_method = "uniform";
  plan.split.layers.assign(static_cast<std::size_t>(shape.ranks), 1);
  plan.schedule = generated();
  plan.boundary = boundary_manifest(plan.model, plan.training);
  plan.costs = costs(even_stages);
  plan.costs.boundary_bytes = bytes(plan.boundary);
  return plan;
}

class PlanFile {
 public:
  explicit PlanFile(bool even_stages = false) { write_file(path_, to_json(large_plan(even_stages))); }
  ~PlanFile() { std::filesystem::remove(path_); }
  PlanFile(const PlanFile&) = delete;
  PlanFile& operator=(const PlanFile&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("plumb_bench" + std::to_string(::getpid()) + ".json");
};

void file_to_timeline(benchmark::State& state, const std::string& engine, bool even_stages) {
  const PlanFile file(even_stages);
  const Evaluator evaluator = sim::find_engine(engine);
  std::size_t activities = 0;
  for (auto _ : state) {
    const Timeline timeline = evaluator(read_plan(file.path()));
    activities = timeline.steps.front().events.size();
  }
  state.counters["activities/s"] =
      benchmark::Counter(static_cast<double>(activities), benchmark::Counter::kIsIterationInvariantRate);
}

void read(benchmark::State& state) {
  const PlanFile file;
  for (auto _ : state) benchmark::DoNotOptimize(read_plan(file.path()));
}
BENCHMARK(read)->Unit(benchmark::kMillisecond);

const bool registered = [] {
  for (const std::string& engine : sim::engine_names()) {
    for (const bool even_stages : {false, true}) {
      const std::string name = "file_to_timeline/" + engine + (even_stages ? "/even_stages" : "/uneven_stages");
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        file_to_timeline(state, engine, even_stages);
      })->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace plumb::bench
