#include "common/timeline/chart/chart_columns.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace plumb {
namespace {

constexpr int most_bands = 8;
constexpr int most_lines = 160;

// The different lengths of compute actions, ascending; none without length.
std::vector<double> lengths(const StepTimeline& step) {
  std::vector<double> found;
  for (const Event& event : step.events) {
    if (track_of(event.action.kind) != Track::compute) continue;
    const double length = (event.end - event.start).value;
    const auto same = [&](double other) { return std::abs(length - other) <= 1e-9 * step.duration.value; };
    if (length <= 1e-9 * step.duration.value || (!found.empty() && same(found.back()))) continue;
    if (std::none_of(found.begin(), found.end(), same)) found.push_back(length);
    if (found.size() > 64) break;  // stages of many sizes: no cell suits them all
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Into how many cells the shortest action is cut, so that all actions are whole cells; 1 if a few do not do.
int cells_of_shortest(const std::vector<double>& all) {
  for (int cells = 1; cells <= 6; ++cells) {
    const double cell = all.front() / cells;
    const auto whole = [&](double length) { return std::abs(length / cell - std::round(length / cell)) < 1e-6; };
    if (std::all_of(all.begin(), all.end(), whole)) return cells;
  }
  return 1;
}

double length_of(const std::vector<Segment>& segments) {
  double sum = 0;
  for (const Segment& segment : segments) sum += (segment.to - segment.from).value;
  return sum;
}

// The repeating part several times over where it is too short to see; what then is left over goes behind it.
std::vector<Segment> with_visible_repeats(std::vector<Segment> segments, double cell) {
  constexpr double visible = 6;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    Segment& segment = segments[i];
    if (segment.repeats < 2) continue;
    const Seconds period = segment.to - segment.from;
    const Seconds end = segment.from + period * segment.repeats;
    const int shown = std::clamp(static_cast<int>(std::ceil(visible * cell / period.value)), 1, segment.repeats / 2);
    segment.repeats /= shown;
    segment.to = segment.from + period * shown;
    const Seconds rest = segment.from + period * shown * segment.repeats;
    if (i + 1 < segments.size()) {
      segments[i + 1].from = rest;
    } else if ((end - rest).value > 1e-9 * end.value) {
      segments.push_back({.from = rest, .to = end});
    }
    break;
  }
  return segments;
}

std::vector<ChartColumn> cut(const std::vector<Segment>& segments, double cell, double total, int width,
                             bool squeezed) {
  std::vector<ChartColumn> columns;
  const int separators = static_cast<int>(segments.size()) - 1;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const double length = (segment.to - segment.from).value;
    const double wanted = squeezed ? length / total * (width - separators) : length / cell;
    const int count = std::max(1, static_cast<int>(squeezed ? std::floor(wanted) : std::round(wanted)));
    const auto number = static_cast<int>(i);
    if (i > 0) columns.push_back({.from = segment.from, .to = segment.from, .segment = number});
    for (int k = 0; k < count; ++k) {
      columns.push_back({.from = {segment.from.value + length * k / count},
                         .to = {segment.from.value + length * (k + 1) / count},
                         .segment = number});
    }
  }
  return columns;
}

}  // namespace

ChartLayout lay_out(const StepTimeline& step, const Schedule& schedule, int width, int rows) {
  const Segment whole{.from = {}, .to = step.duration};
  const std::vector<double> all = lengths(step);
  const double shortest = all.empty() ? step.duration.value : all.front();
  const int cells = all.empty() ? 1 : cells_of_shortest(all);
  ChartLayout layout{.segments = {whole}, .columns = {}};
  std::vector<Segment> steady = {whole};
  if (step.duration.value / shortest * cells > width) {
    steady = steady_segments(step, schedule);
    layout.segments = with_visible_repeats(steady, shortest / cells);
  }
  const double total = length_of(layout.segments);
  const int room = width - static_cast<int>(layout.segments.size()) + 1;
  const auto fits = [&](double cell, int bands) { return total / cell <= room + (bands - 1) * width + 1e-6; };
  const auto set = [&](double cell, int bands) {
    layout.columns = cut(layout.segments, cell, total, width, false);
    layout.bands = bands;
    return layout;
  };
  constexpr int most_of_shortest = 4;  // a short action with a number of three digits
  for (int wide = std::max(1, most_of_shortest / cells); wide >= 1; --wide) {
    if (fits(shortest / cells / wide, 1)) return set(shortest / cells / wide, 1);
  }
  for (const double cell : {shortest / cells, shortest}) {
    for (int bands = 1; bands <= most_bands && bands * rows <= std::max(most_lines, rows); ++bands) {
      if ((bands == 1 || cell == shortest || cells <= 2) && fits(cell, bands)) return set(cell, bands);
    }
  }
  layout.segments = with_visible_repeats(steady, total / width);
  layout.columns = cut(layout.segments, shortest, length_of(layout.segments), width, true);
  layout.dense = true;
  return layout;
}

std::size_t ink_of(ActionKind kind) {
  return static_cast<std::size_t>(std::find(chart_inks.begin(), chart_inks.end(), kind) - chart_inks.begin());
}

std::vector<ChartCell> fill(const ChartLayout& layout, const std::vector<const Event*>& events) {
  std::vector<ChartCell> cells;
  cells.reserve(layout.columns.size());
  auto first = events.begin();
  for (const ChartColumn& column : layout.columns) {
    while (first != events.end() && (*first)->end <= column.from) ++first;
    std::array<double, chart_inks.size()> of_ink{};
    std::array<const Event*, chart_inks.size()> longest_of_ink{};
    std::array<double, chart_inks.size()> longest{};
    double sum = 0;
    for (auto event = first; event != events.end() && (*event)->start < column.to; ++event) {
      const double covered = (std::min((*event)->end, column.to) - std::max((*event)->start, column.from)).value;
      const std::size_t ink = ink_of((*event)->action.kind);
      of_ink[ink] += covered;
      sum += covered;
      if (covered <= longest[ink] * (1 + 1e-9)) continue;
      longest[ink] = covered;
      longest_of_ink[ink] = *event;
    }
    const auto& weighed = layout.dense ? of_ink : longest;
    const auto most = static_cast<std::size_t>(std::max_element(weighed.begin(), weighed.end()) - weighed.begin());
    constexpr double nearly_all = 0.9;
    constexpr double some = 0.05;
    const double length = (column.to - column.from).value;
    ChartCell cell;
    if (length > 0 && sum * 2 >= length * (1 - 1e-9)) {
      cell = {.event = longest_of_ink[most], .mixed = layout.dense && of_ink[most] < nearly_all * sum};
    } else {
      cell.sparse = layout.dense && length > 0 && sum >= some * length;
    }
    cells.push_back(cell);
  }
  return cells;
}

char plain_letter(ActionKind kind, int digit) {
  char first = 'a';
  if (kind == ActionKind::forward) first = '0';
  if (kind == ActionKind::input_gradient) first = 'k';
  if (kind == ActionKind::weight_gradient) first = 'A';
  return static_cast<char>(first + digit);
}

std::string plain_letters(ActionKind kind) {
  if (kind == ActionKind::recompute) return "r";
  return {plain_letter(kind, 0), '-', plain_letter(kind, 9)};
}

}  // namespace plumb
