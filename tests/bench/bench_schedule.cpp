// What happens to a schedule before it is simulated or run.
#include <benchmark/benchmark.h>

#include "common/graph/evaluate.hpp"
#include "common/graph/memory.hpp"
#include "common/schedule/validate/validate.hpp"
#include "common/schedule/zb_auto/zb_auto.hpp"
#include "common/timeline/chart/schedule_chart.hpp"
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

StepTimeline step_of(const ScheduleGraph& graph, const Evaluation& evaluation) {
  std::vector<Event> events;
  events.reserve(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    events.push_back({node.action, node.rank, node.peer, evaluation.start[i], evaluation.end[i], {}, node.bytes});
  }
  return ordered_step(std::move(events));
}

// From a shape to what a user sees: generated, validated, lowered, evaluated, drawn.
std::string drawn(const ScheduleEntry& entry, ScheduleShape wanted) {
  wanted.chunks = entry.uses_chunks ? 2 : 1;
  wanted.slices = entry.uses_slices ? default_slices : 1;
  const Schedule schedule = entry.generate(wanted);
  require_valid(schedule);
  const Schedule with_messages = lowered(schedule);
  const ScheduleGraph graph = build_graph(
      with_messages, even_costs(stages(schedule), {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}}));
  return schedule_chart(step_of(graph, evaluate(graph)), schedule, {.peaks = peak_activations(schedule)});
}

void every_schedule_drawn(benchmark::State& state) {
  for (auto _ : state) {
    for (const ScheduleEntry& entry : schedule_entries()) {
      benchmark::DoNotOptimize(drawn(entry, {.ranks = 8, .microbatches = 32}));
    }
  }
}
BENCHMARK(every_schedule_drawn)->Unit(benchmark::kMillisecond);

void one_schedule_drawn(benchmark::State& state) {
  const ScheduleEntry& entry = schedule_entries().at(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(drawn(entry, {.ranks = 8, .microbatches = 32}));
  state.SetLabel(entry.name);
}
BENCHMARK(one_schedule_drawn)
    ->DenseRange(0, static_cast<std::int64_t>(schedule_entries().size()) - 1)
    ->Unit(benchmark::kMicrosecond);

void large_1f1b_drawn(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(drawn(find_schedule("1f1b"), shape));
}
BENCHMARK(large_1f1b_drawn)->Unit(benchmark::kMillisecond);

// 16 uneven stages and 64 microbatches with 1F1B's memory.
void auto_scheduling(benchmark::State& state) {
  constexpr int ranks = 16;
  AutoProblem problem{.ranks = ranks,
                      .microbatches = 64,
                      .rank_of_stage = {},
                      .stages = {},
                      .hop = std::vector<Seconds>(ranks - 1, {1e-4}),
                      .limit = std::vector<Bytes>(ranks, {ranks})};
  for (int s = 0; s < ranks; ++s) {
    const double factor = 1 + 0.1 * (s * 7 % 5);
    problem.rank_of_stage.push_back(s);
    problem.stages.push_back({.forward = {1e-3 * factor},
                              .input_gradient = {1.1e-3 * factor},
                              .weight_gradient = {0.9e-3 * factor},
                              .kept = {1},
                              .kept_for_weight = {1}});
  }
  for (auto _ : state) benchmark::DoNotOptimize(schedule_zb_auto(problem));
  rate(state, 3UL * 64 * ranks, "actions/s");
}
BENCHMARK(auto_scheduling)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumb::bench
