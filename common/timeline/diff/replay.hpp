// A step's measured durations put back on the schedule graph: does the graph explain the step?
#pragma once

#include "common/graph/evaluate.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Per node of the graph, what the step's events say. Throws InputError when an event of the graph is missing or
// doubled. A B counts where the graph has I and W, and the reverse: as their sum.
struct MeasuredDurations {
  std::vector<Seconds> durations;
  std::vector<Seconds> starts;
  // Of a node that occupies its rank: how long the rank then took to hand over messages, as hosts do on the same
  // thread.
  std::vector<Seconds> sends;
  // start − the end of the last thing waited for, sends among them: time of the host itself. Below zero where clocks of
  // two ranks differ, or where the rank did not act in the graph's order.
  std::vector<Seconds> gaps;
};

[[nodiscard]] MeasuredDurations measured_durations(const ScheduleGraph& graph, const StepTimeline& step);

// Of the timeline's schedule; where its events are of all ranks of a layout, of them.
[[nodiscard]] ScheduleGraph graph_of(const Timeline& timeline);

// Of what is known of one pipeline the same in every lane of the layout. A timeline of all ranks is itself.
[[nodiscard]] Timeline of_all_ranks(Timeline timeline, const Layout& layout);

struct Replay {
  Seconds step;               // rebuilt from durations alone, those of sends too, no gaps
  double error_fraction = 0;  // (step − measured) / measured
};

[[nodiscard]] Replay replay(const ScheduleGraph& graph, const StepTimeline& step);

}  // namespace plumb
