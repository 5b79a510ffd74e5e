#include "common/timeline/chart/gantt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/timeline/chart/time_axis.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb {
namespace {

enum class Ink : std::uint8_t {
  idle,
  waiting,
  forward,
  backward,
  input_gradient,
  weight_gradient,
  recompute,
  head_part,
  embedding_part,
  optimizer
};
constexpr std::size_t ink_count = 10;

// All that a part of a vocabulary does has one ink, whatever its kind.
Ink gantt_ink(const Action& action, const GanttStyle& style) {
  if (style.parts > 0 && is_compute(action.kind)) {
    const StageSort sort = sort_of_stage(action.stage, style.chain, style.parts);
    if (sort != StageSort::layers) return sort == StageSort::head ? Ink::head_part : Ink::embedding_part;
  }
  switch (action.kind) {
    case ActionKind::forward:
      return Ink::forward;
    case ActionKind::backward:
      return Ink::backward;
    case ActionKind::input_gradient:
      return Ink::input_gradient;
    case ActionKind::weight_gradient:
      return Ink::weight_gradient;
    case ActionKind::recompute:
      return Ink::recompute;
    default:
      return Ink::optimizer;
  }
}

// Black on a colour of the terminal's own sixteen.
std::string_view escape_of(Ink ink) {
  constexpr std::array<std::string_view, ink_count> escapes{"",
                                                            "",
                                                            "\033[30;104m",
                                                            "\033[30;102m",
                                                            "\033[30;106m",
                                                            "\033[30;103m",
                                                            "\033[30;105m",
                                                            "\033[30;101m",
                                                            "\033[30;41m",
                                                            "\033[30;107m"};
  return escapes[static_cast<std::size_t>(ink)];
}

constexpr std::string_view mixed_escape = "\033[30;47m";

struct Cell {
  Ink ink = Ink::idle;
  std::int32_t microbatch = no_microbatch;
  // What matters where a column holds several actions.
  bool mixed = false;   // several kinds of compute, none of which has nearly all of it
  bool sparse = false;  // some compute, but less than half
};

// Where a column holds several actions, its microbatch says nothing: columns then stand for kinds.
struct Drawing {
  GanttStyle style;
  bool dense = false;
};

// How much of one cell each ink covers, and the longest action of each.
struct Cover {
  std::array<double, ink_count> seconds{};
  std::array<double, ink_count> longest{};
  std::array<std::int32_t, ink_count> microbatch{};
};

void add_cover(std::vector<Cover>& covers, const Event& event, Ink ink, Seconds cell) {
  const auto last = static_cast<double>(covers.size()) - 1;
  const auto first_cell = static_cast<std::size_t>(std::clamp(std::floor(event.start / cell), 0.0, last));
  const auto last_cell = static_cast<std::size_t>(std::clamp(std::floor(event.end / cell), 0.0, last));
  const auto kind = static_cast<std::size_t>(ink);
  for (std::size_t i = first_cell; i <= last_cell; ++i) {
    const double begin = std::max(event.start.value, static_cast<double>(i) * cell.value);
    const double covered = std::min(event.end.value, static_cast<double>(i + 1) * cell.value) - begin;
    if (covered <= 0) continue;
    covers[i].seconds[kind] += covered;
    if (covered <= covers[i].longest[kind]) continue;
    covers[i].longest[kind] = covered;
    covers[i].microbatch[kind] = event.action.microbatch;
  }
}

// Compute wins where it fills at least half of the cell; then the kind that fills most of it.
Cell dominant(const Cover& cover, Seconds cell) {
  double compute = 0;
  auto most = static_cast<std::size_t>(Ink::forward);
  for (auto ink = static_cast<std::size_t>(Ink::forward); ink < ink_count; ++ink) {
    compute += cover.seconds[ink];
    if (cover.seconds[ink] > cover.seconds[most]) most = ink;
  }
  if (compute * 2 >= cell.value) {
    constexpr double nearly_all = 0.9;
    return {.ink = static_cast<Ink>(most),
            .microbatch = cover.microbatch[most],
            .mixed = cover.seconds[most] < nearly_all * compute};
  }
  const double waiting = cover.seconds[static_cast<std::size_t>(Ink::waiting)];
  constexpr double some = 0.05;
  return {.ink = waiting * 2 >= cell.value - compute ? Ink::waiting : Ink::idle,
          .sparse = compute >= some * cell.value};
}

// Of an action whose microbatch is not drawn.
std::string kind_letter(Ink ink) {
  constexpr std::array<std::string_view, ink_count> letters{"", "", "F", "B", "I", "W", "R", "%", "@", ""};
  return std::string(letters[static_cast<std::size_t>(ink)]);
}

std::string symbol(const Cell& cell, const Drawing& drawing) {
  const GanttStyle& style = drawing.style;
  if (drawing.dense && cell.mixed) return "+";
  if (drawing.dense && cell.sparse) return ":";
  if (drawing.dense && !kind_letter(cell.ink).empty()) return kind_letter(cell.ink);
  const auto digit = static_cast<char>(std::max(0, cell.microbatch) % 10);
  const bool coloured = style.colour;
  switch (cell.ink) {
    case Ink::idle:
      return style.unicode ? "·" : ".";
    case Ink::waiting:
      return style.unicode ? "╌" : "-";
    case Ink::forward:
      return {static_cast<char>('0' + digit)};
    case Ink::backward:
      return {static_cast<char>((coloured ? '0' : 'a') + digit)};
    case Ink::input_gradient:
      return {static_cast<char>((coloured ? '0' : 'k') + digit)};
    case Ink::weight_gradient:
      return {static_cast<char>((coloured ? '0' : 'A') + digit)};
    case Ink::recompute:
      return coloured ? std::string{static_cast<char>('0' + digit)} : "r";
    case Ink::head_part:
      return "%";
    case Ink::embedding_part:
      return "@";
    case Ink::optimizer:
      return style.unicode ? "▒" : "#";
  }
  return " ";
}

std::string line_of(const std::vector<Cover>& covers, Seconds cell, const Drawing& drawing) {
  std::string line;
  std::string_view escape;
  for (const Cover& cover : covers) {
    const Cell shown = dominant(cover, cell);
    const std::string_view wanted = drawing.dense && shown.mixed ? mixed_escape : escape_of(shown.ink);
    if (drawing.style.colour && wanted != escape) {
      if (!escape.empty()) line += "\033[0m";
      escape = wanted;
      line += escape;
    }
    line += symbol(shown, drawing);
  }
  if (!escape.empty()) line += "\033[0m";
  return line;
}

// Two lines: labels, and the axis with a mark under each.
std::string time_axis(Seconds duration, std::size_t indent, const GanttStyle& style) {
  const TimeUnit unit = style.in_seconds ? time_unit(duration, style.unicode) : TimeUnit{};
  const auto width = static_cast<std::size_t>(style.width);
  std::string labels(indent + width + 24, ' ');
  std::vector<bool> marks(width + 1);
  std::size_t free = 0;
  for (const Tick& tick : round_ticks(duration, style.width / 8 + 1, unit)) {
    const auto column = std::min(width, static_cast<std::size_t>(std::llround(tick.time / duration * style.width)));
    marks[column] = true;
    const std::string label = tick.time.value > 0 || unit.name.empty()
                                  ? tick.label
                                  : tick.label + " " + (unit.name == "µs" ? "us" : unit.name);
    if (indent + column < free || indent + column + label.size() > labels.size()) continue;
    labels.replace(indent + column, label.size(), label);
    free = indent + column + label.size() + 1;
  }
  labels.erase(labels.find_last_not_of(' ') + 1);
  if (unit.name == "µs") labels.replace(labels.find("us"), 2, "µs");
  std::string axis(indent, ' ');
  for (std::size_t column = 0; column < width; ++column) {
    if (style.unicode)
      axis += marks[column] ? "┬" : "─";
    else
      axis += marks[column] ? '+' : '-';
  }
  return labels + "\n" + axis + "\n";
}

// What is drawn in a chart: kinds of ink, and columns of several kinds.
struct Used {
  std::array<bool, ink_count> inks{};
  bool mixed = false;
  bool sparse = false;
};

std::string legend(const Used& used, const Drawing& drawing, std::size_t width) {
  constexpr std::array<std::string_view, ink_count> names{
      "idle", "waits for a message", "F", "B", "I", "W", "R", "head part", "embedding part", "optimizer"};
  constexpr std::array<std::size_t, ink_count> order{2, 3, 4, 5, 6, 7, 8, 9, 1, 0};
  std::vector<std::string> entries;
  std::vector<std::size_t> widths;
  const auto add_entry = [&](const std::string& sample, std::string_view escape, std::string_view name) {
    const bool coloured = drawing.style.colour && !escape.empty();
    const std::string shown = coloured ? fmt::format("{}{}\033[0m", escape, sample) : sample;
    entries.push_back(name.empty() ? shown : fmt::format("{} {}", shown, name));
    widths.push_back(text_width(sample) + (name.empty() ? 0 : 1 + text_width(name)));
  };
  for (const std::size_t ink : order) {
    if (!used.inks[ink]) continue;
    const auto kind = static_cast<Ink>(ink);
    const std::string first = symbol({.ink = kind, .microbatch = 0}, drawing);
    const bool range = first == "0" || first == "a" || first == "k" || first == "A";
    const std::string sample = range ? first + "-" + symbol({.ink = kind, .microbatch = 9}, drawing) : first;
    add_entry(sample, escape_of(kind), first == names[ink] ? "" : names[ink]);
  }
  if (used.mixed) add_entry("+", mixed_escape, "several kinds");
  if (used.sparse) add_entry(":", "", "busy less than half");
  if (entries.empty()) return "";
  add_entry(drawing.dense ? "(a column holds several actions: their kind)"
                          : "(digits and letters: microbatch, its last digit)",
            "", "");
  return wrapped(entries, widths, width);
}

// More actions than columns on some rank.
bool is_dense(const StepTimeline& step, int ranks, int width) {
  std::vector<int> actions(static_cast<std::size_t>(ranks), 0);
  for (const Event& event : step.events) {
    if (track_of(event.action.kind) == Track::compute) ++actions[static_cast<std::size_t>(event.rank)];
  }
  return *std::max_element(actions.begin(), actions.end()) > width;
}

std::string chart(const StepTimeline& step, int ranks, const GanttStyle& style) {
  const StepStatistics statistics = step_statistics(step, ranks);
  const Seconds cell = step.duration / style.width;
  const auto width = static_cast<std::size_t>(style.width);
  std::vector<std::vector<Cover>> covers(static_cast<std::size_t>(ranks), std::vector<Cover>(width));
  for (const Event& event : step.events) {
    const Track track = track_of(event.action.kind);
    if (track == Track::send) continue;
    add_cover(covers[static_cast<std::size_t>(event.rank)], event,
              track == Track::compute ? gantt_ink(event.action, style) : Ink::waiting, cell);
  }
  const std::size_t digits = std::to_string(ranks - 1).size();
  const std::string_view edge = style.unicode ? "│" : "|";
  std::string text = time_axis(step.duration, 5 + digits + 2, style);
  const Drawing drawing{.style = style, .dense = is_dense(step, ranks, style.width)};
  Used used;
  for (std::size_t rank = 0; rank < covers.size(); ++rank) {
    for (const Cover& cover : covers[rank]) {
      const Cell shown = dominant(cover, cell);
      const bool mixed = drawing.dense && shown.mixed;
      const bool sparse = drawing.dense && shown.sparse;
      (mixed ? used.mixed : sparse ? used.sparse : used.inks[static_cast<std::size_t>(shown.ink)]) = true;
    }
    text += fmt::format("rank {:>{}} {}{}{} {:5.1f}% busy\n", rank, digits, edge, line_of(covers[rank], cell, drawing),
                        edge, 100 * (statistics.ranks[rank].compute / step.duration));
  }
  constexpr std::size_t beside = 20;  // "rank ", the edges and the share
  return text + legend(used, drawing, std::max<std::size_t>(width + beside + digits, 60));
}

}  // namespace

std::string gantt(const StepTimeline& step, int ranks, const GanttStyle& style) {
  if (!(step.duration.value > 0) || ranks < 1) return "(nothing happens in this step)\n";
  GanttStyle drawable = style;
  drawable.width = std::clamp(style.width, 10, 1000);
  return chart(step, ranks, drawable);
}

}  // namespace plumb
