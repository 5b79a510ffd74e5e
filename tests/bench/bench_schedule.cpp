// What happens to a schedule before it is simulated or run.
#include <benchmark/benchmark.h>

#include "common/graph/evaluate.hpp"
#include "common/schedule/validate.hpp"
#include "tests/bench/pipeline.hpp"

namespace plumb::bench {
namespace {

void rate(benchmark::State& state, std::size_t per_iteration, const char* what) {
  state.counters[what] =
      benchmark::Counter(static_cast<double>(per_iteration), benchmark::Counter::kIsIterationInvariantRate);
}

std::size_t actions(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& list : schedule.actions) count += list.size();
  return count;
}

void generation(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(generated());
  rate(state, actions(generated()), "actions/s");
}
BENCHMARK(generation)->Unit(benchmark::kMillisecond);

void lowering(benchmark::State& state) {
  const Schedule schedule = generated();
  for (auto _ : state) benchmark::DoNotOptimize(lowered(schedule));
  rate(state, actions(lowered(schedule)), "actions/s");
}
BENCHMARK(lowering)->Unit(benchmark::kMillisecond);

void validation(benchmark::State& state) {
  const Schedule schedule = lowered(generated());
  for (auto _ : state) benchmark::DoNotOptimize(validate(schedule));
  rate(state, actions(schedule), "actions/s");
}
BENCHMARK(validation)->Unit(benchmark::kMillisecond);

void graph_build(benchmark::State& state) {
  const Schedule schedule = lowered(generated());
  const PipelineCosts all = costs();
  for (auto _ : state) benchmark::DoNotOptimize(build_graph(schedule, all));
  rate(state, build_graph(schedule, all).nodes.size(), "nodes/s");
}
BENCHMARK(graph_build)->Unit(benchmark::kMillisecond);

void longest_path(benchmark::State& state) {
  const ScheduleGraph graph = build_graph(lowered(generated()), costs());
  for (auto _ : state) benchmark::DoNotOptimize(evaluate(graph));
  rate(state, graph.nodes.size(), "nodes/s");
}
BENCHMARK(longest_path)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumb::bench
