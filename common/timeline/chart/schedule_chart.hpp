// A schedule's step as text that stays readable with many ranks and microbatches: what repeats is drawn once, and a
// long chart goes on below.
#pragma once

#include <string>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

struct ScheduleChartStyle {
  int width = 100;  // columns of the chart
  bool colour = false;
  bool unicode = true;
  bool in_seconds = false;         // false: times are in a unit of the user's own
  std::vector<double> peaks = {};  // activations per rank, written behind its line; may be empty
};

// Times are in a unit of the user's own. Every action has a column at least as long as that takes no more than a few
// bands of `width` columns; beyond, columns show kinds of actions.
[[nodiscard]] std::string schedule_chart(const StepTimeline& step, const Schedule& schedule,
                                         const ScheduleChartStyle& style);

// Which of a rank's parts an action belongs to, counted from 0: its chunk, of two replicas the replica, of sliced
// sequences the slice, of a divided vocabulary layers, head or embedding. Charts give each a shade. "" for `part_word`
// where there is but one.
[[nodiscard]] int part_of(const Schedule& schedule, const Action& action);
[[nodiscard]] std::string part_word(const Schedule& schedule);
// "chunk 1", "replica 0"; of a divided vocabulary "head part" or "embedding part", and nothing of layers; "" where
// there is but one.
[[nodiscard]] std::string part_text(const Schedule& schedule, const Action& action);

}  // namespace plumb
