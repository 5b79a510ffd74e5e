#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "common/base/text.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/timeline/chart/time_axis.hpp"
#include "common/timeline/report/report_parts.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb::html {
namespace {

// In units of the picture, which scales to the width of the page.
constexpr double lane_left = 64;
constexpr double lane_width = 1060;
constexpr double picture_width = 1180;
constexpr double axis_height = 22;

// Of one lane: the compute, under it the messages, and the way to the next lane.
struct LaneShape {
  double height = 20;
  double message = 4;
  double step = 30;
};
LaneShape lane_shape(std::size_t lanes) {
  return lanes <= 24 ? LaneShape{} : LaneShape{.height = 12, .message = 2, .step = 17};
}

// What a browser draws without effort: more are folded.
constexpr std::size_t most_shapes = 12000;
constexpr std::size_t most_lanes = 96;
constexpr std::size_t fewest_columns = 60;  // of a folded lane
constexpr std::size_t most_columns = 300;
constexpr double same_share = 0.03;  // neighbouring columns that differ by less are one

constexpr std::array compute_order{ActionKind::forward,         ActionKind::backward,  ActionKind::input_gradient,
                                   ActionKind::weight_gradient, ActionKind::recompute, ActionKind::optimizer_step};

class Picture {
 public:
  Picture(const Timeline& timeline, const StepTimeline& step, Seconds longest)
      : step_(step),
        ranks_(ranks_of(timeline)),
        schedule_(timeline.schedule),
        longest_(std::max(longest, step.duration)),
        unit_(time_unit(longest_)) {}

  std::string draw() {
    by_rank_.resize(static_cast<std::size_t>(ranks_));
    for (const Event& event : step_.events) {
      if (track_of(event.action.kind) == Track::send) continue;
      by_rank_.at(static_cast<std::size_t>(event.rank)).push_back(&event);
    }
    choose_lanes();
    const double height = axis_height + lane_.step * static_cast<double>(lanes_.size()) + 4;
    emit(R"(<svg class="timeline" viewBox="0 0 {:.0f} {:.0f}" role="img">)", picture_width, height);
    draw_axis(height);
    const StepStatistics statistics = step_statistics(step_, ranks_);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) draw_lane(lane, statistics);
    emit(
        R"(<line class="end" x1="{0:.2f}" x2="{0:.2f}" y1="{1:.0f}" y2="{2:.0f}"><title>end of the step: {3}</title></line>)",
        x(step_.duration), axis_height - 6, height, to_text(step_.duration));
    out_ += "</svg>\n";
    return out_ + notes();
  }

 private:
  template <class... Arguments>
  void emit(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
  }

  [[nodiscard]] double x(Seconds time) const {
    return lane_left + (longest_.value > 0 ? lane_width * std::clamp(time / longest_, 0.0, 1.0) : 0);
  }

  void choose_lanes() {
    const std::size_t ranks = by_rank_.size();
    const std::size_t count = std::min(ranks, most_lanes);
    for (std::size_t i = 0; i < count; ++i) lanes_.push_back(count < 2 ? 0 : i * (ranks - 1) / (count - 1));
    lane_ = lane_shape(count);
    shapes_per_lane_ = most_shapes / std::max<std::size_t>(count, 1);
    columns_ = std::clamp(shapes_per_lane_ / 2, fewest_columns, most_columns);
  }

  void draw_axis(double height) {
    out_ += "<g class=\"axis\">";
    for (const Tick& tick : round_ticks(longest_, 12, unit_)) {
      emit(R"(<line x1="{0:.2f}" x2="{0:.2f}" y1="{1:.0f}" y2="{2:.0f}"/><text x="{0:.2f}" y="11">{3}{4}</text>)",
           x(tick.time), axis_height - 6, height, tick.label, tick.time.value > 0 ? "" : " " + unit_.name);
    }
    out_ += "</g>\n";
  }

  void draw_lane(std::size_t lane, const StepStatistics& statistics) {
    const std::size_t rank = lanes_[lane];
    const double top = axis_height + lane_.step * static_cast<double>(lane);
    const double share = step_.duration.value > 0 ? statistics.ranks[rank].compute / step_.duration : 0;
    emit(
        R"(<g><text class="rank" x="0" y="{:.0f}">rank {}</text><rect class="lane" x="{}" y="{}" width="{:.2f}" height="{}"/>)",
        top + lane_.height / 2 + 4, rank, lane_left, top, x(step_.duration) - lane_left, lane_.height);
    if (by_rank_[rank].size() > shapes_per_lane_) {
      draw_folded(rank, top);
    } else {
      for (const Event* event : by_rank_[rank]) draw_event(*event, top);
    }
    emit(R"(<text class="busy" x="{}" y="{:.0f}">{:.0f}%</text></g>)", picture_width - 8, top + lane_.height / 2 + 4,
         100 * share);
    out_ += '\n';
  }

  void draw_event(const Event& event, double top) {
    const bool compute = track_of(event.action.kind) == Track::compute;
    const double left = x(event.start);
    const double width = std::max(0.15, x(event.end) - left);
    // Stages of one rank by turns a shade lighter, so that chunks are told apart; parts of a vocabulary by their own.
    const bool divided = schedule_.vocabulary_barriers > 0;
    const StageSort sort = divided ? sort_of_stage(schedule_, event.action.stage) : StageSort::layers;
    const bool lighter = sort == StageSort::head ||
                         (sort == StageSort::layers && event.action.stage / std::max(1, schedule_.ranks) % 2 == 1);
    const std::string_view shade = sort == StageSort::embedding ? " third" : lighter ? " odd" : "";
    emit(R"(<rect class="{}{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"><title>{}</title></rect>)",
         colour_class(event.action.kind), compute ? shade : "", left, compute ? top : top + lane_.height + 1, width,
         compute ? lane_.height : lane_.message, tooltip(event));
    if (!compute || event.action.microbatch == no_microbatch) return;
    const std::string label = std::to_string(event.action.microbatch);
    if (lane_.height < 14 || width < 5.4 * static_cast<double>(label.size()) + 2) return;
    emit(R"(<text class="in" x="{:.2f}" y="{}">{}</text>)", left + width / 2, top + 14, label);
  }

  [[nodiscard]] std::string tooltip(const Event& event) const {
    const auto at = [&](Seconds time) { return fmt::format("{:.6g}", time.value * unit_.per_second); };
    std::string text = fmt::format("{} · {} from {} to {} {}", to_string(event.action),
                                   to_text(event.end - event.start), at(event.start), at(event.end), unit_.name);
    if (const auto part = part_name(schedule_, event.action.stage); !part.empty()) text += fmt::format(" · {}", part);
    const bool together = track_of(event.action.kind) == Track::collective;
    if (event.peer >= 0) text += fmt::format(" · {} rank {}", together ? "with" : "from", event.peer);
    if (event.bytes.value > 0) text += " · " + to_text(event.bytes);
    if (event.waited.value > 0) text += " · waited for " + to_text(event.waited);
    if (event.beside.value > 0) text += " · beside the backward for " + to_text(event.beside);
    return text;
  }

  using Shares = std::array<double, compute_order.size()>;

  // Per column of time the part that each kind of compute has of it.
  [[nodiscard]] std::vector<Shares> shares_of(std::size_t rank) const {
    const Seconds column = step_.duration / static_cast<double>(columns_);
    std::vector<Shares> shares(columns_);
    for (const Event* event : by_rank_[rank]) {
      const auto kind = std::ranges::find(compute_order, event->action.kind) - compute_order.begin();
      if (kind == std::ssize(compute_order)) continue;
      const auto last = static_cast<double>(columns_ - 1);
      const auto first_column = static_cast<std::size_t>(std::clamp(event->start / column, 0.0, last));
      const auto last_column = static_cast<std::size_t>(std::clamp(event->end / column, 0.0, last));
      for (std::size_t i = first_column; i <= last_column; ++i) {
        const Seconds begin = std::max(event->start, column * static_cast<double>(i));
        const Seconds end = std::min(event->end, column * static_cast<double>(i + 1));
        shares[i][static_cast<std::size_t>(kind)] += std::max(0.0, (end - begin) / column);
      }
    }
    return shares;
  }

  // Too many to tell apart: columns, filled from below by the share that each kind has of their time.
  void draw_folded(std::size_t rank, double top) {
    folded_ = true;
    const std::vector<Shares> shares = shares_of(rank);
    const Seconds column = step_.duration / static_cast<double>(columns_);
    for (std::size_t first = 0; first < columns_;) {
      const auto alike = [&](double a, double b) { return std::abs(a - b) < same_share; };
      Shares sum = shares[first];
      std::size_t last = first + 1;
      for (; last < columns_ && std::ranges::equal(shares[first], shares[last], alike); ++last) {
        for (std::size_t kind = 0; kind < sum.size(); ++kind) sum[kind] += shares[last][kind];
      }
      for (double& share : sum) share /= static_cast<double>(last - first);
      draw_column(sum, x(column * static_cast<double>(first)), x(column * static_cast<double>(last)), top);
      first = last;
    }
  }

  void draw_column(const Shares& shares, double left, double right, double top) {
    double bottom = top + lane_.height;
    for (std::size_t kind = 0; kind < compute_order.size(); ++kind) {
      const double height = lane_.height * std::min(1.0, shares[kind]);
      if (height < 0.05) continue;
      bottom -= height;
      emit(R"(<rect class="{} share" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{} {}</title></rect>)",
           colour_class(compute_order[kind]), left, bottom, right - left, height, letters(compute_order[kind]),
           percent_text(shares[kind]));
    }
  }

  [[nodiscard]] std::string notes() const {
    std::string text;
    if (lanes_.size() < by_rank_.size()) {
      text += fmt::format("{} of {} ranks are drawn, evenly chosen. ", lanes_.size(), by_rank_.size());
    }
    if (folded_) {
      text += fmt::format(
          "{} actions are too many to draw one by one: each column shows the shares of its time, messages are left "
          "out. The timeline itself, opened in Perfetto, has them all. ",
          step_.events.size());
    }
    return text.empty() ? "" : "<p class=\"note\">" + text + "</p>\n";
  }

  const StepTimeline& step_;
  int ranks_;
  const Schedule& schedule_;
  Seconds longest_;
  TimeUnit unit_;
  std::vector<std::vector<const Event*>> by_rank_;
  std::vector<std::size_t> lanes_;  // ranks that are drawn
  LaneShape lane_;
  std::size_t shapes_per_lane_ = 0;
  std::size_t columns_ = most_columns;
  bool folded_ = false;
  std::string out_;
};

}  // namespace

std::string timeline_picture(const Timeline& timeline, const StepTimeline& step, Seconds longest) {
  return Picture(timeline, step, longest).draw();
}

std::string timeline_legend(const std::vector<const StepTimeline*>& steps, bool divides_vocabulary) {
  std::array<bool, compute_order.size()> used{};
  bool messages = false;
  bool reductions = false;
  for (const StepTimeline* step : steps) {
    for (const Event& event : step->events) {
      const auto kind = std::ranges::find(compute_order, event.action.kind) - compute_order.begin();
      if (kind < std::ssize(compute_order))
        used[static_cast<std::size_t>(kind)] = true;
      else if (colour_class(event.action.kind) == "reduction")
        reductions = true;
      else
        messages = true;
    }
  }
  std::string text = "<p class=\"legend\">";
  constexpr std::array<std::string_view, compute_order.size()> names{
      "F forward", "B backward", "I input gradient", "W weight gradient", "R recompute", "optimizer"};
  for (std::size_t i = 0; i < compute_order.size(); ++i) {
    if (used[i])
      text += fmt::format(R"(<span><i class="key {}"></i>{}</span>)", colour_class(compute_order[i]), names[i]);
  }
  if (divides_vocabulary) text += "<span>paler: head part, palest: embedding part</span>";
  if (messages) text += R"(<span><i class="key message"></i>message on its way to this rank</span>)";
  if (reductions) text += R"(<span><i class="key reduction"></i>all-reduce of gradients, with this rank</span>)";
  return text +
         R"(<span><i class="key idle"></i>nothing to compute</span><span class="quiet">numbers: microbatch; at the right: computing</span></p>)" +
         "\n";
}

}  // namespace plumb::html
