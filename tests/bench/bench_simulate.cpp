// Activities per second through SimGrid.
#include <benchmark/benchmark.h>

#include "sim/runner.hpp"
#include "tests/bench/pipeline.hpp"

namespace plumb::bench {
namespace {

void simgrid(benchmark::State& state) {
  const PipelineCosts all = costs();
  const ScheduleGraph graph = build_graph(lowered(generated()), all);
  for (auto _ : state) benchmark::DoNotOptimize(sim::simulate(graph, all));
  state.counters["activities/s"] =
      benchmark::Counter(static_cast<double>(graph.nodes.size()), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(simgrid)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumb::bench
