// A step as text: one line per rank, one column per slice of time. Columns show microbatches; where a rank has more
// actions than columns they show the kind of these actions.
#pragma once

#include <string>

#include "common/timeline/timeline.hpp"

namespace plumb {

struct GanttStyle {
  int width = 100;  // columns of the chart
  bool colour = false;
  bool unicode = true;
  // Stages of layers where parts of a vocabulary stand behind them, and as many of the head as there are `parts`.
  int chain = 0;
  int parts = 0;
  bool in_seconds = true;  // false: times are in a unit of the user's own, which the axis does not name
};

[[nodiscard]] std::string gantt(const StepTimeline& step, int ranks, const GanttStyle& style);

}  // namespace plumb
