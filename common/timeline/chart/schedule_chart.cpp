#include "common/timeline/chart/schedule_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "common/base/text.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/timeline/chart/chart_columns.hpp"
#include "common/timeline/chart/time_axis.hpp"

namespace plumb {
namespace {

// On the terminal's own sixteen colours: parts by turns bright and dark, from the third on underlined.
std::string escape_of(ActionKind kind, int part, bool overlapped) {
  constexpr std::array<int, chart_inks.size()> colours{4, 2, 6, 3, 5, 7};  // blue, green, cyan, yellow, magenta, white
  const int colour = colours[ink_of(kind)];
  const bool bright = part % 2 == 0;
  const bool white = !bright && (colour == 4 || colour == 5);
  return fmt::format("\033[0;{}{}{};{}m", overlapped ? "1;" : "", part / 2 % 2 == 1 ? "4;" : "", white ? 97 : 30,
                     (bright ? 100 : 40) + colour);
}
constexpr std::string_view mixed_colours = "\033[0;30;47m";
constexpr std::string_view reset = "\033[0m";

// By `part_of`, where ranks divide a vocabulary: below a rank, and beside a sample of the colour.
constexpr std::array<char, 3> vocabulary_letters{' ', 'h', 'e'};
constexpr std::array<const char*, 3> vocabulary_words{"layers", "head part", "embedding part"};

// A moment that has no length of its own, or none on its rank's stream.
struct Mark {
  Seconds time;
  char letter;
};

class Chart {
 public:
  Chart(const StepTimeline& step, const Schedule& schedule, const ScheduleChartStyle& style)
      : step_(step),
        schedule_(schedule),
        style_(style),
        by_rank_(static_cast<std::size_t>(schedule.ranks)),
        marks_(by_rank_.size()) {
    for (const Event& event : step.events) sort_in(event);
    for (const OverlappedPair& pair : schedule.overlapped) {
      overlapped_.insert(pair.first);
      overlapped_.insert(pair.second);
    }
    for (auto& marks : marks_) std::ranges::stable_sort(marks, {}, &Mark::time);
    const bool marked = std::any_of(marks_.begin(), marks_.end(), [](const auto& marks) { return !marks.empty(); });
    below_ = marked || (!style.colour && !part_word(schedule).empty());
    const int lines = schedule.ranks * (below_ ? 2 : 1) + 3;
    layout_ = lay_out(step, schedule, style.width, lines);
    below_ = marked || (below_ && !layout_.dense);
    if (!layout_.dense) most_part_ = most_part();
    for (const auto& events : by_rank_) cells_.push_back(fill(layout_, events));
  }

  [[nodiscard]] std::string draw() const {
    const std::size_t count = layout_.columns.size();
    const std::size_t each = layout_.bands == 1 ? count : static_cast<std::size_t>(style_.width);
    std::string text;
    for (std::size_t begin = 0; begin < count; begin += each) {
      text += band(begin, std::min(count, begin + each));
    }
    return text + legend();
  }

 private:
  void sort_in(const Event& event) {
    const auto rank = static_cast<std::size_t>(event.rank);
    if (is_eviction(event.action.kind)) {
      // The copy stands with its receiver; both ranks take part.
      const bool evicts = event.action.kind == ActionKind::evict;
      marks_[rank].push_back({event.end, evicts ? 'e' : 'L'});
      if (event.peer >= 0) marks_[static_cast<std::size_t>(event.peer)].push_back({event.start, evicts ? 'E' : 'l'});
    } else if (event.action.kind == ActionKind::optimizer_step && !(event.end > event.start)) {
      marks_[rank].push_back({event.end, 'S'});
    } else if (track_of(event.action.kind) == Track::compute && event.end > event.start) {
      by_rank_[rank].push_back(&event);
      used_[ink_of(event.action.kind)] = true;
    }
  }

  // Of a dense chart, which has the most actions, nobody asks.
  [[nodiscard]] int most_part() const {
    int most = 0;
    for (const auto& events : by_rank_) {
      for (const Event* event : events) most = std::max(most, part_of(schedule_, event->action));
    }
    return most;
  }

  [[nodiscard]] bool divides_vocabulary() const { return schedule_.vocabulary_barriers > 0; }
  [[nodiscard]] std::string_view edge() const { return style_.unicode ? "│" : "|"; }
  [[nodiscard]] std::size_t digits() const { return std::to_string(schedule_.ranks - 1).size(); }
  [[nodiscard]] std::size_t indent() const { return 5 + digits() + 2; }

  [[nodiscard]] std::string band(std::size_t begin, std::size_t end) const {
    const bool last = end == layout_.columns.size();
    std::string text = captions(begin, end) + labels(begin, end);
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
      text += fmt::format("rank {:>{}} {}{}{}", rank, digits(), edge(), line(rank, begin, end), edge());
      if (last) text += beside(rank);
      text += '\n';
      if (below_) text += fmt::format("{:>{}}{}{}{}\n", "", indent() - 1, edge(), line_below(rank, begin, end), edge());
    }
    return text;
  }

  [[nodiscard]] std::string beside(std::size_t rank) const {
    Seconds busy;
    for (const Event* event : by_rank_[rank]) busy += event->end - event->start;
    std::string text = fmt::format(" {:5.1f}%", 100 * (busy / step_.duration));
    if (rank < style_.peaks.size()) text += fmt::format(" {:5.4g}", style_.peaks[rank]);
    return text;
  }

  // What a column shows of a microbatch: its number where there is room, else its last digits.
  [[nodiscard]] std::string label(const Event& event, std::size_t width) const {
    const int microbatch = std::max(0, event.action.microbatch) / schedule_.slices;
    const int digit = microbatch % 10;
    const ActionKind kind = event.action.kind;
    if (kind == ActionKind::optimizer_step) return repeated(style_.unicode ? "▒" : "#", width);
    if (!style_.colour) {
      if (kind == ActionKind::recompute) return repeated("r", width);
      return repeated(std::string(1, plain_letter(kind, digit)), width);
    }
    const std::string number = std::to_string(microbatch);
    if (number.size() > width) return number.substr(number.size() - width);
    return number + std::string(width - number.size(), ' ');
  }

  static std::string repeated(std::string_view symbol, std::size_t width) {
    std::string text;
    for (std::size_t i = 0; i < width; ++i) text += symbol;
    return text;
  }

  [[nodiscard]] std::string symbol(const ChartCell& cell, std::size_t width) const {
    if (layout_.dense && cell.mixed) return repeated("+", width);
    if (cell.sparse) return repeated(":", width);
    if (cell.event == nullptr) return repeated(style_.unicode ? "·" : ".", width);
    if (layout_.dense && cell.event->action.kind != ActionKind::optimizer_step) {
      return repeated(letters(cell.event->action.kind), width);
    }
    return label(*cell.event, width);
  }

  [[nodiscard]] bool is_separator(std::size_t column) const {
    return !(layout_.columns[column].to > layout_.columns[column].from);
  }
  [[nodiscard]] std::string_view separator() const { return style_.unicode ? "┊" : "!"; }

  [[nodiscard]] std::string escape(const ChartCell& cell) const {
    if (layout_.dense && cell.mixed) return std::string(mixed_colours);
    if (cell.event == nullptr) return std::string(reset);
    const Action& action = cell.event->action;
    return escape_of(action.kind, layout_.dense ? 0 : part_of(schedule_, action), overlapped_.contains(action));
  }

  [[nodiscard]] std::string line(std::size_t rank, std::size_t begin, std::size_t end) const {
    const std::vector<ChartCell>& cells = cells_[rank];
    std::string text;
    std::string now(reset);
    for (std::size_t first = begin; first < end;) {
      if (is_separator(first)) {
        if (now != reset) text += reset;
        now = reset;
        text += separator();
        ++first;
        continue;
      }
      const auto alike = [&](const ChartCell& cell) {
        return cell.event == cells[first].event && cell.mixed == cells[first].mixed &&
               cell.sparse == cells[first].sparse;
      };
      std::size_t last = first + 1;
      while (last < end && !is_separator(last) && alike(cells[last])) ++last;
      const std::string wanted = style_.colour ? escape(cells[first]) : std::string(reset);
      if (wanted != now) text += wanted;
      now = wanted;
      text += symbol(cells[first], last - first);
      first = last;
    }
    return now == reset ? text : text + std::string(reset);
  }

  // The part that each action belongs to, where no colour tells, and the marks.
  [[nodiscard]] std::string line_below(std::size_t rank, std::size_t begin, std::size_t end) const {
    std::string text(end - begin, ' ');
    const bool parts = !style_.colour && !layout_.dense && most_part_ > 0;
    for (std::size_t i = begin; parts && i < end; ++i) {
      const Event* event = cells_[rank][i].event;
      if (event == nullptr) continue;
      const int part = part_of(schedule_, event->action);
      text[i - begin] = divides_vocabulary() ? vocabulary_letters.at(static_cast<std::size_t>(part))
                                             : static_cast<char>('0' + part % 10);
    }
    auto mark = marks_[rank].begin();
    for (std::size_t i = 0; i < end; ++i) {
      const ChartColumn& column = layout_.columns[i];
      const Seconds slack = 1e-9 * step_.duration;
      // What is hidden between two segments stays so.
      while (mark != marks_[rank].end() && mark->time <= column.from + slack && mark->time > Seconds{}) ++mark;
      for (bool marked = false; mark != marks_[rank].end() && mark->time <= column.to + slack; ++mark) {
        if (i < begin) continue;
        text[i - begin] = marked && text[i - begin] != mark->letter ? '*' : mark->letter;
        marked = true;
      }
    }
    if (!std::any_of(text.begin(), text.end(), [](char c) { return c != ' '; })) return text;
    std::string with_separators;
    for (std::size_t i = begin; i < end; ++i) {
      if (is_separator(i))
        with_separators += separator();
      else
        with_separators += text[i - begin];
    }
    return with_separators;
  }

  // "warm-up", "× 48", "cool-down" over their segments, if anything is folded.
  [[nodiscard]] std::string captions(std::size_t begin, std::size_t end) const {
    const auto& segments = layout_.segments;
    const bool folded =
        std::any_of(segments.begin(), segments.end(), [](const Segment& segment) { return segment.repeats > 1; });
    if (!folded) return "";
    std::string line(indent() + (end - begin) + 12, ' ');
    const auto place = [&](std::size_t segment, const std::string& caption) {
      for (std::size_t i = begin; i < end; ++i) {
        if (static_cast<std::size_t>(layout_.columns[i].segment) != segment || is_separator(i)) continue;
        if (i > begin && static_cast<std::size_t>(layout_.columns[i - 1].segment) == segment && !is_separator(i - 1))
          return;
        const std::size_t at = indent() + i - begin;
        if (line.find_first_not_of(' ', at) < at + caption.size() + 1) return;
        if (at + caption.size() <= line.size()) line.replace(at, caption.size(), caption);
        return;
      }
    };
    std::size_t repeating = 0;
    while (segments[repeating].repeats < 2) ++repeating;
    place(repeating, fmt::format("x {}", segments[repeating].repeats));
    if (repeating > 0) place(repeating - 1, "warm-up");
    if (repeating + 1 < segments.size()) place(repeating + 1, "cool-down");
    const std::size_t sign = line.find("x ");
    if (sign != std::string::npos && style_.unicode) line.replace(sign, 1, "×");
    const std::size_t text_end = line.find_last_not_of(' ');
    return text_end == std::string::npos ? "" : line.substr(0, text_end + 1) + "\n";
  }

  [[nodiscard]] TimeUnit unit() const {
    return style_.in_seconds ? time_unit(step_.duration, style_.unicode) : TimeUnit{};
  }

  // Round times over their columns, and the axis. What is folded away has no times.
  [[nodiscard]] std::string labels(std::size_t begin, std::size_t end) const {
    const std::size_t width = end - begin;
    std::string line(indent() + width + 16, ' ');
    std::vector<bool> marked(width, false);
    double shown = 0;
    for (const Segment& segment : layout_.segments) shown += (segment.to - segment.from).value;
    const int most =
        static_cast<int>(static_cast<double>(layout_.columns.size()) / 8 * step_.duration.value / shown) + 1;
    std::size_t free = 0;
    std::size_t column = begin;
    for (const Tick& tick : round_ticks(step_.duration, std::clamp(most, 2, 20000), unit())) {
      const Seconds slack = 1e-9 * step_.duration;
      while (column < end && layout_.columns[column].to <= tick.time + slack) ++column;
      if (column == end) break;
      if (layout_.columns[column].from > tick.time + slack || is_separator(column)) continue;
      marked[column - begin] = true;
      const std::size_t at = indent() + column - begin;
      if (at < free || at + tick.label.size() > indent() + width) continue;
      line.replace(at, tick.label.size(), tick.label);
      free = at + tick.label.size() + 1;
    }
    if (end == layout_.columns.size()) {
      line.replace(indent() + width + 3, 4, "busy");
      if (!style_.peaks.empty()) line.replace(indent() + width + 9, 4, "peak");
    }
    const std::size_t last = line.find_last_not_of(' ');
    std::string axis(indent(), ' ');
    for (std::size_t i = 0; i < width; ++i) {
      axis += style_.unicode ? (marked[i] ? "┬" : "─") : (marked[i] ? "+" : "-");
    }
    return (last == std::string::npos ? "" : line.substr(0, last + 1)) + "\n" + axis + "\n";
  }

  [[nodiscard]] std::string legend() const {
    std::vector<std::string> entries;
    std::vector<std::size_t> widths;
    const auto add = [&](const std::string& sample, const std::string& escape, const std::string& name) {
      const bool coloured = style_.colour && !escape.empty();
      entries.push_back((coloured ? escape + sample + std::string(reset) : sample) + (name.empty() ? "" : " " + name));
      widths.push_back(text_width(sample) + (name.empty() ? 0 : 1 + text_width(name)));
    };
    for (const ActionKind kind : chart_inks) {
      if (!used_[ink_of(kind)]) continue;
      const std::string name(letters(kind));
      const bool plain = !style_.colour && !layout_.dense;
      std::string sample = plain ? plain_letters(kind) : name;
      if (kind == ActionKind::optimizer_step) sample = style_.unicode ? "▒" : "#";
      add(sample, escape_of(kind, 0, false), sample == name ? "" : name);
    }
    const std::string word = part_word(schedule_);
    if (!layout_.dense && !word.empty() && style_.colour) {
      for (int part = 0; part <= std::min(most_part_, 3); ++part) {
        const std::string name = divides_vocabulary() ? vocabulary_words.at(static_cast<std::size_t>(part))
                                                      : std::string(part == 0 ? word : "");
        add(divides_vocabulary() ? "F" : std::to_string(part), escape_of(ActionKind::forward, part, false), name);
      }
      if (most_part_ > 3) add("and so on", "", "");
      if (!overlapped_.empty()) add("0", escape_of(ActionKind::forward, 0, true), "overlapped with its neighbour");
    }
    if (layout_.dense) {
      add("+", std::string(mixed_colours), "several kinds");
      add(":", "", "busy less than half");
    }
    add_marks(add);
    if (!layout_.dense) add("(numbers: microbatch)", "", "");
    if (style_.in_seconds) add("(times: " + unit().name + ")", "", "");
    if (below_ && !layout_.dense && !word.empty() && !style_.colour) {
      add(divides_vocabulary() ? "(below a rank: h head part, e embedding part)" : "(below a rank: the " + word + ")",
          "", "");
    }
    return wrapped(entries, widths, std::max<std::size_t>(static_cast<std::size_t>(style_.width) + indent(), 40));
  }

  template <class Add>
  void add_marks(const Add& add) const {
    const auto marked = [&](char letter) {
      return std::any_of(marks_.begin(), marks_.end(), [&](const std::vector<Mark>& marks) {
        return std::any_of(marks.begin(), marks.end(), [&](const Mark& mark) { return mark.letter == letter; });
      });
    };
    if (marked('S')) add("S", "", "optimizer step (STEP)");
    if (marked('E')) add("E", "", "evicts to its partner (EVICT; there e)");
    if (marked('L')) add("L", "", "loads back (LOAD; there l)");
    if (marked('E') && marked('L')) add("*", "", "several of these");
  }

  const StepTimeline& step_;
  const Schedule& schedule_;
  const ScheduleChartStyle& style_;
  std::vector<std::vector<const Event*>> by_rank_;  // with a length, in the order of time
  std::vector<std::vector<Mark>> marks_;
  std::array<bool, chart_inks.size()> used_{};
  int most_part_ = 0;
  std::set<Action> overlapped_;
  bool below_ = false;  // a second line under each rank
  ChartLayout layout_;
  std::vector<std::vector<ChartCell>> cells_;  // per rank and column
};

}  // namespace

int part_of(const Schedule& schedule, const Action& action) {
  if (action.microbatch == no_microbatch) return 0;
  if (replicas(schedule) > 1) return replica_of(schedule, action.microbatch);
  if (schedule.slices > 1) return action.microbatch % schedule.slices;
  if (schedule.vocabulary_barriers > 0) return static_cast<int>(sort_of_stage(schedule, action.stage));
  if (all_stages(schedule) <= schedule.ranks) return 0;
  const auto stage = schedule.rank_of_stage.begin() + action.stage;
  return static_cast<int>(std::count(schedule.rank_of_stage.begin(), stage, *stage));
}

std::string part_word(const Schedule& schedule) {
  if (replicas(schedule) > 1) return "replica";
  if (schedule.slices > 1) return "slice";
  if (schedule.vocabulary_barriers > 0) return "part";
  return stages(schedule) > schedule.ranks ? "chunk" : "";
}

std::string part_text(const Schedule& schedule, const Action& action) {
  if (schedule.vocabulary_barriers > 0) return std::string(part_name(schedule, action.stage));
  const std::string word = part_word(schedule);
  return word.empty() ? "" : word + " " + std::to_string(part_of(schedule, action));
}

std::string schedule_chart(const StepTimeline& step, const Schedule& schedule, const ScheduleChartStyle& style) {
  if (!(step.duration.value > 0) || schedule.ranks < 1) return "(nothing happens in this step)\n";
  ScheduleChartStyle drawable = style;
  drawable.width = std::clamp(style.width, 10, 1000);
  return Chart(step, schedule, drawable).draw();
}

}  // namespace plumb
