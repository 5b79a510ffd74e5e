// When every node starts and ends, if nothing contends: the longest path, and what follows from it.
#pragma once

#include <span>
#include <vector>

#include "common/graph/schedule_graph.hpp"

namespace plumb {

struct Evaluation {
  std::vector<Seconds> start;  // per node
  std::vector<Seconds> end;
  Seconds makespan;
};

// O(nodes + edges), in topological order. `gaps`, if not empty, delays each node's start after all it waits for;
// `sends`, if not empty, is how long behind each node its rank hands over messages before it goes on with the next node
// that occupies it: the sender's overhead o of LogP (Culler et al., 1993). Throws InputError when one is of another
// size.
[[nodiscard]] Evaluation evaluate(const ScheduleGraph& graph);
[[nodiscard]] Evaluation evaluate(const ScheduleGraph& graph, std::span<const Seconds> durations,
                                  std::span<const Seconds> gaps = {}, std::span<const Seconds> sends = {});

// The chain of nodes that ends last, from its start; ties by id.
[[nodiscard]] std::vector<NodeId> critical_path(const ScheduleGraph& graph, const Evaluation& evaluation);

// Two bubbles: makespan − busy, and the longest rank's own span − busy, where busy is the mean over the ranks of the
// time in compute nodes; a rank's span is from its first compute node to the end of its last. The "zero" of zero-bubble
// schedules is the second (arXiv 2401.10241).
struct Bubbles {
  Seconds makespan;
  Seconds span;
  double makespan_fraction = 0;  // of the makespan
  double span_fraction = 0;      // of the longest span
};

[[nodiscard]] Bubbles bubbles(const ScheduleGraph& graph, const Evaluation& evaluation);

}  // namespace plumb
