// How a schedule's chart is laid out in columns of text. Internal.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "common/timeline/steady_state.hpp"

namespace plumb {

struct ChartColumn {
  Seconds from;
  Seconds to;       // the same as `from` where a segment ends: the column is a separator
  int segment = 0;  // that it belongs to
};

struct ChartLayout {
  std::vector<Segment> segments;
  std::vector<ChartColumn> columns;
  int bands = 1;       // that the columns take, each of the chart's width
  bool dense = false;  // columns hold several actions
};

// `rows` is how many lines a band has.
[[nodiscard]] ChartLayout lay_out(const StepTimeline& step, const Schedule& schedule, int width, int rows);

// What fills a column, in the order of the legend.
inline constexpr std::array chart_inks{ActionKind::forward,         ActionKind::backward,  ActionKind::input_gradient,
                                       ActionKind::weight_gradient, ActionKind::recompute, ActionKind::optimizer_step};
[[nodiscard]] std::size_t ink_of(ActionKind kind);  // its place among them

// Without colour: the letter of a microbatch whose number ends with `digit`, and all ten of a kind, "a-j".
[[nodiscard]] char plain_letter(ActionKind kind, int digit);
[[nodiscard]] std::string plain_letters(ActionKind kind);

struct ChartCell {
  const Event* event = nullptr;  // that fills most of it; none: it is idle
  bool mixed = false;            // of a dense chart: others fill nearly as much
  bool sparse = false;           // of a dense chart: something happens, in less than half
};

// The columns of one rank, whose events have a length and come in the order of time.
[[nodiscard]] std::vector<ChartCell> fill(const ChartLayout& layout, const std::vector<const Event*>& events);

}  // namespace plumb
