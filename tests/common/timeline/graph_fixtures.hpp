// Timelines made from the schedule graph itself: what a machine of known durations and pauses would have measured.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "common/graph/evaluate.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/timeline/timeline.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/common/timeline/fixtures.hpp"

namespace plumb::test {

struct Case {
  Schedule schedule;  // lowered
  PipelineCosts costs;
  ScheduleGraph graph;
};

inline Case make_case(const std::string& name, const ScheduleShape& shape, bool recompute = false, bool tied = false) {
  Schedule schedule = generate_schedule(name, shape);
  const int count = stages(schedule);
  if (recompute) {
    std::vector<bool> every_second(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < every_second.size(); i += 2) every_second[i] = true;
    schedule = with_recompute(schedule, every_second);
  }
  Case made{.schedule = lower(schedule, {.optimizer = true, .tied_embeddings = tied}),
            .costs = some_costs(count),
            .graph = {}};
  if (tied) made.costs.tied_bytes = {1 << 20};
  made.graph = build_graph(made.schedule, made.costs);
  return made;
}

// A handful of shapes for each schedule that there is.
inline std::vector<Case> some_cases() {
  std::vector<Case> cases;
  for (const ScheduleEntry& entry : schedule_entries()) {
    cases.push_back(make_case(entry.name, shape_for(entry, {.chunks = 2, .microbatches = 8, .ranks = 4})));
    const bool recompute = !entry.uses_slices && entry.name != "bpipe";
    cases.push_back(make_case(entry.name, shape_for(entry, {.chunks = 2, .microbatches = 4, .ranks = 2}), recompute,
                              !entry.updates_within));
    const GridShape alone{.chunks = 1, .microbatches = 3, .ranks = 1};
    if (!entry.uses_chunks && applies(entry, alone)) cases.push_back(make_case(entry.name, shape_for(entry, alone)));
  }
  return cases;
}

inline StepTimeline step_of(const ScheduleGraph& graph, const Evaluation& evaluation) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool transfer = node.kind == NodeKind::transfer;
    events.push_back(
        {node.action, node.rank, transfer ? node.peer : -1, evaluation.start[i], evaluation.end[i], {}, node.bytes});
  }
  return ordered_step(std::move(events));
}

inline Timeline timeline_of(const Case& made, TimelineSource source, const Evaluation& evaluation) {
  Timeline timeline;
  timeline.source = source;
  timeline.producer = source == TimelineSource::predicted ? "path" : "plumb-exec test";
  timeline.plan_name = "test plan";
  timeline.plan_digest = "0123456789abcdef";
  timeline.schedule = made.schedule;
  timeline.costs = made.costs;
  timeline.tokens_per_step = 4096;
  timeline.ranks.resize(static_cast<std::size_t>(made.schedule.ranks));
  timeline.steps = {step_of(made.graph, evaluation)};
  return timeline;
}

inline Timeline predicted_of(const Case& made) {
  return timeline_of(made, TimelineSource::predicted, evaluate(made.graph));
}

inline Timeline measured_of(const Case& made, const std::vector<Seconds>& durations,
                            const std::vector<Seconds>& gaps = {}) {
  return timeline_of(made, TimelineSource::measured, evaluate(made.graph, durations, gaps));
}

// Each between `low` and `high` times what it was.
inline std::vector<Seconds> scaled(std::vector<Seconds> values, double low, double high, std::mt19937_64& random) {
  for (Seconds& value : values) value = value * std::uniform_real_distribution<double>(low, high)(random);
  return values;
}

inline std::vector<Seconds> random_gaps(std::size_t count, double most, std::mt19937_64& random) {
  return scaled(std::vector<Seconds>(count, Seconds{most}), 0, 1, random);
}

}  // namespace plumb::test
