// Runs a schedule graph on the simulated machines: what evaluate() says, plus contention for cores and ports.
#pragma once

#include <span>

#include "common/graph/disturbance.hpp"
#include "sim/platform.hpp"

namespace plumb::sim {

// Equal to evaluate(graph) where nothing contends. What a transfer's duration exceeds bytes / bandwidth is its latency;
// a collective of two ranks is one message each way. Throws InputError for a graph that cannot be simulated (undefined
// or negative durations, kinds of nodes that are not built yet), RunError naming the nodes that never ran.
[[nodiscard]] Evaluation simulate(const ScheduleGraph& graph, const Platform& platform);
[[nodiscard]] Evaluation simulate(const ScheduleGraph& graph, const PipelineCosts& costs);

// The same with what goes wrong at dates. Where something fails for good, `unfinished` names what never ended: first
// what was under way or could have started, then the rest, each by id.
[[nodiscard]] StepOutcome simulate(const ScheduleGraph& graph, const Platform& platform,
                                   std::span<const Disturbance> disturbances);

}  // namespace plumb::sim
