// Activities per second through SimGrid.
#include <benchmark/benchmark.h>

#include "sim/runner.hpp"
#include "tests/bench/pipeline.hpp"

namespace plumb::bench {
namespace {

void simgrid(benchmark::State& state, bool even_stages) {
  const PipelineCosts all = costs(even_stages);
  const ScheduleGraph graph = build_graph(lowered(generated()), all);
  for (auto _ : state) benchmark::DoNotOptimize(sim::simulate(graph, all));
  state.counters["activities/s"] =
      benchmark::Counter(static_cast<double>(graph.nodes.size()), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(simgrid, uneven_stages, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simgrid, even_stages, true)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumb::bench
