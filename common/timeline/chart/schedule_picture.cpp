#include "common/timeline/chart/schedule_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "common/base/text.hpp"
#include "common/timeline/chart/markup.hpp"
#include "common/timeline/chart/schedule_chart.hpp"
#include "common/timeline/chart/time_axis.hpp"
#include "common/timeline/steady_state.hpp"

namespace plumb {
namespace {

// In pixels at the picture's own size; it scales.
constexpr double lane_left = 64;
constexpr double lane_height = 20;
constexpr double lane_step = 26;
constexpr double side_width = 170;  // busy and peak, beside the lanes
constexpr double gap = 10;          // between two segments
constexpr double narrowest = 16;    // the shortest action, if the picture does not get too wide
constexpr double widest_lanes = 6000;
constexpr double narrowest_lanes = 640;

constexpr std::string_view style = R"(<style>
svg { --paper: #ffffff; --ink: #1d2329; --quiet: #68727d; --grid: #e6e8e7; --lane: #f0f1f0;
  --F: #4a7fd4; --B: #2a9a8a; --I: #45b3c4; --W: #e2a33c; --R: #9b73c4; --step: #7b8794; --mark: #c2566b;
  font: 11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) { svg { --paper: #14171a; --ink: #e4e7ea; --quiet: #939da7; --grid: #252a2f;
  --lane: #22272c; --F: #5b8fe0; --B: #35a898; --I: #4fb9ca; --W: #dda243; --R: #a984cf; --step: #8793a0;
  --mark: #d4707f; } }
.paper { fill: var(--paper); } text { fill: var(--ink); font-variant-numeric: tabular-nums; }
.title { font-size: 16px; font-weight: 600; } .quiet { fill: var(--quiet); }
.grid { stroke: var(--grid); } .lane { fill: var(--lane); } .in { fill: #10141a; text-anchor: middle; font-size: 10px;
  pointer-events: none; } .middle { text-anchor: middle; } .right { text-anchor: end; }
.F { fill: var(--F); } .B { fill: var(--B); } .I { fill: var(--I); } .W { fill: var(--W); } .R { fill: var(--R); }
.step { fill: var(--step); } .mark { stroke: var(--mark); stroke-width: 2; } .peak { fill: var(--quiet); }
.odd { opacity: .62; } .third { opacity: .32; } .overlapped { stroke: var(--ink); stroke-width: 1; } .fold { stroke: var(--quiet);
  stroke-dasharray: 2 3; }
</style>
)";

// Of the parts of a rank by turns; only those of a divided vocabulary are three.
constexpr std::array<std::string_view, 3> shades{"", " odd", " third"};

// Where a part of the step is drawn.
struct Part {
  Segment segment;
  double left = 0;
  double width = 0;
  [[nodiscard]] bool has(const Event& event) const { return event.end > segment.from && event.start < segment.to; }
  [[nodiscard]] double x(Seconds time) const {
    const double share = (time - segment.from) / (segment.to - segment.from);
    return left + width * std::clamp(share, 0.0, 1.0);
  }
};

class Picture {
 public:
  Picture(const StepTimeline& step, const Schedule& schedule, const SchedulePictureText& text)
      : step_(step), schedule_(schedule), text_(text) {
    for (const OverlappedPair& pair : schedule.overlapped) {
      overlapped_.push_back(pair.first);
      overlapped_.push_back(pair.second);
    }
    std::ranges::sort(overlapped_);
    place();
    top_ = 34 + 16 * static_cast<double>(text.lines.size()) + 44;
  }

  std::string draw() {
    const double lanes_end = parts_.back().left + parts_.back().width;
    const double bottom = top_ + lane_step * schedule_.ranks;
    const double width = lanes_end + side_width;
    const double height = bottom + 58;  // two lines of legend
    emit(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" )"
         R"(role="img">)",
         width, height);
    emit("\n<title>{}</title>\n", html::escaped(text_.title));
    out_ += style;
    emit(R"(<rect class="paper" width="{:.0f}" height="{:.0f}"/>)", width, height);
    emit(R"(<text class="title" x="12" y="24">{}</text>)", html::escaped(text_.title));
    for (std::size_t i = 0; i < text_.lines.size(); ++i) {
      emit(R"(<text class="quiet" x="12" y="{}">{}</text>)", 42 + 16 * i, html::escaped(text_.lines[i]));
    }
    out_ += '\n';
    draw_axis(bottom);
    for (int rank = 0; rank < schedule_.ranks; ++rank) draw_lane(rank, lanes_end);
    draw_events();
    draw_side(lanes_end);
    draw_legend(bottom + 26, width);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  template <class... Arguments>
  void emit(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
  }

  void place() {
    double shortest = step_.duration.value;
    for (const Event& event : step_.events) {
      const double length = (event.end - event.start).value;
      if (track_of(event.action.kind) == Track::compute && length > 0) shortest = std::min(shortest, length);
    }
    const auto wanted = [&](double time) { return shortest > 0 ? time / shortest * narrowest : 0; };
    std::vector<Segment> segments = {{.from = {}, .to = step_.duration}};
    if (wanted(step_.duration.value) > widest_lanes / 3) segments = steady_segments(step_, schedule_);
    double total = 0;
    for (const Segment& segment : segments) total += (segment.to - segment.from).value;
    const double lanes = std::clamp(wanted(total), narrowest_lanes, widest_lanes);
    double left = lane_left;
    for (const Segment& segment : segments) {
      const double share = total > 0 ? (segment.to - segment.from).value / total : 1;
      parts_.push_back({.segment = segment, .left = left, .width = lanes * share});
      left += lanes * share + gap;
    }
  }

  [[nodiscard]] double top_of(int rank) const { return top_ + lane_step * rank; }

  void draw_axis(double bottom) {
    const double end = parts_.back().left + parts_.back().width;
    for (const Part& part : parts_) {
      if (part.segment.repeats > 1) {
        emit(R"(<text class="middle" x="{:.1f}" y="{:.0f}">× {}</text>)", part.left + part.width / 2, top_ - 26,
             part.segment.repeats);
      }
      if (&part != parts_.data()) {
        emit(R"(<line class="fold" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.0f}" y2="{2:.0f}"/>)", part.left - gap / 2,
             top_ - 22, bottom);
      }
    }
    const int most = std::clamp(static_cast<int>((end - lane_left) / 60), 2, 400);
    double free = 0;
    for (const Tick& tick : round_ticks(step_.duration, most, TimeUnit{})) {
      for (const Part& part : parts_) {
        if (tick.time < part.segment.from || tick.time > part.segment.to) continue;
        const double x = part.x(tick.time);
        if (x < free) break;
        emit(R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.0f}" y2="{2:.0f}"/>)", x, top_ - 6, bottom);
        emit(R"(<text class="quiet middle" x="{:.1f}" y="{:.0f}">{}</text>)", x, top_ - 10, tick.label);
        free = x + 30;
        break;
      }
    }
    out_ += '\n';
  }

  void draw_lane(int rank, double lanes_end) {
    emit(R"(<text x="8" y="{:.0f}">rank {}</text>)", top_of(rank) + 14, rank);
    emit(R"(<rect class="lane" x="{}" y="{:.0f}" width="{:.1f}" height="{}"/>)", lane_left, top_of(rank),
         lanes_end - lane_left, lane_height);
    out_ += '\n';
  }

  [[nodiscard]] std::string tooltip(const Event& event) const {
    std::string text = fmt::format("{} on rank {}: {:.6g} to {:.6g}", to_string(event.action), event.rank,
                                   event.start.value, event.end.value);
    if (const std::string part = part_text(schedule_, event.action); !part.empty()) text += ", " + part;
    if (is_eviction(event.action.kind)) text += fmt::format(", from rank {}", event.peer);
    return text;
  }

  void draw_events() {
    for (const Event& event : step_.events) {
      const bool step = event.action.kind == ActionKind::optimizer_step;
      const bool moment = is_eviction(event.action.kind) || (step && !(event.end > event.start));
      const bool bar = track_of(event.action.kind) == Track::compute && event.end > event.start;
      if (moment) draw_moment(event);
      if (!bar) continue;
      for (const Part& part : parts_) {
        if (part.has(event)) draw_bar(event, part);
      }
    }
  }

  // Of no length on its rank: a stroke at the lane's foot.
  void draw_moment(const Event& event) {
    for (const Part& part : parts_) {
      if (event.end < part.segment.from || event.end > part.segment.to) continue;
      emit(R"(<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.0f}" y2="{2:.0f}"><title>{3}</title></line>)",
           part.x(event.end), top_of(event.rank) + lane_height - 6, top_of(event.rank) + lane_height + 4,
           tooltip(event));
      out_ += '\n';
      return;
    }
  }

  void draw_bar(const Event& event, const Part& part) {
    const double left = part.x(event.start);
    const double width = std::max(0.2, part.x(event.end) - left - 0.5);
    const int shade = part_of(schedule_, event.action) % (schedule_.vocabulary_barriers > 0 ? 3 : 2);
    const bool overlapped = std::ranges::binary_search(overlapped_, event.action);
    emit(R"(<rect class="{}{}{}" x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{}"><title>{}</title></rect>)",
         html::colour_class(event.action.kind), shades.at(static_cast<std::size_t>(shade)),
         overlapped ? " overlapped" : "", left, top_of(event.rank), width, lane_height, tooltip(event));
    if (event.action.microbatch != no_microbatch) {
      const std::string label = std::to_string(event.action.microbatch / schedule_.slices);
      if (width >= 6 * static_cast<double>(label.size()) + 2) {
        emit(R"(<text class="in" x="{:.1f}" y="{:.0f}">{}</text>)", left + width / 2, top_of(event.rank) + 14, label);
      }
    }
    out_ += '\n';
  }

  // Busy, and the peak as a number and a bar: all to one scale.
  void draw_side(double left) {
    std::vector<Seconds> busy(static_cast<std::size_t>(schedule_.ranks));
    for (const Event& event : step_.events) {
      if (is_compute(event.action.kind)) busy[static_cast<std::size_t>(event.rank)] += event.end - event.start;
    }
    const double most = text_.peaks.empty() ? 0 : *std::ranges::max_element(text_.peaks);
    emit(R"(<text class="quiet right" x="{:.0f}" y="{:.0f}">busy</text>)", left + 46, top_ - 10);
    if (most > 0) emit(R"(<text class="quiet" x="{:.0f}" y="{:.0f}">activations</text>)", left + 58, top_ - 10);
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const double share = step_.duration.value > 0 ? busy[at] / step_.duration : 0;
      emit(R"(<text class="right" x="{:.0f}" y="{:.0f}">{:.1f}%</text>)", left + 46, top_of(rank) + 14, 100 * share);
      if (at >= text_.peaks.size() || !(most > 0)) continue;
      const double length = 70 * text_.peaks[at] / most;
      emit(R"(<rect class="peak" x="{:.0f}" y="{:.0f}" width="{:.1f}" height="8"/>)", left + 58, top_of(rank) + 6,
           length);
      emit(R"(<text x="{:.0f}" y="{:.0f}">{:.4g}</text>)", left + 62 + length, top_of(rank) + 14, text_.peaks[at]);
    }
    out_ += '\n';
  }

  void draw_legend(double y, double right) {
    constexpr std::array kinds{ActionKind::forward,         ActionKind::backward,  ActionKind::input_gradient,
                               ActionKind::weight_gradient, ActionKind::recompute, ActionKind::optimizer_step};
    constexpr std::array<std::string_view, kinds.size()> names{"F forward",         "B backward",  "I input gradient",
                                                               "W weight gradient", "R recompute", "STEP optimizer"};
    double x = lane_left;
    const auto entry = [&](std::string_view text) {
      const double length = 5.8 * static_cast<double>(text_width(text));
      if (x > lane_left && x + length > right) {
        x = lane_left;
        y += 18;
      }
      emit(R"(<text x="{:.0f}" y="{:.0f}">{}</text>)", x, y, text);
      x += length + 16;
    };
    bool moments = false;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const bool used = std::any_of(step_.events.begin(), step_.events.end(), [&](const Event& event) {
        return event.action.kind == kinds[i] && event.end > event.start;
      });
      if (!used) continue;
      emit(R"(<rect class="{}" x="{:.0f}" y="{:.0f}" width="11" height="11"/>)", html::colour_class(kinds[i]), x,
           y - 10);
      x += 16;
      entry(names[i]);
    }
    for (const Event& event : step_.events) {
      const bool step = event.action.kind == ActionKind::optimizer_step && !(event.end > event.start);
      moments = moments || step || is_eviction(event.action.kind);
    }
    if (moments) {
      emit(R"(<line class="mark" x1="{0:.0f}" x2="{0:.0f}" y1="{1:.0f}" y2="{2:.0f}"/>)", x + 4, y - 10, y);
      x += 16;
      entry("STEP, EVICT or LOAD (see its tooltip)");
    }
    const std::string word = part_word(schedule_);
    if (schedule_.vocabulary_barriers > 0) {
      entry("paler: head part");
      entry("palest: embedding part");
    } else if (!word.empty()) {
      entry("paler: every second " + word);
    }
    if (!overlapped_.empty()) entry("framed: overlapped pairs");
    entry("numbers: microbatch");
    out_ += '\n';
  }

  const StepTimeline& step_;
  const Schedule& schedule_;
  const SchedulePictureText& text_;
  std::vector<Action> overlapped_;  // ascending
  std::vector<Part> parts_;
  double top_ = 0;  // of the first lane
  std::string out_;
};

}  // namespace

std::string schedule_picture(const StepTimeline& step, const Schedule& schedule, const SchedulePictureText& text) {
  return Picture(step, schedule, text).draw();
}

}  // namespace plumb
