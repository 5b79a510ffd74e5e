#include "common/timeline/timeline.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/base/error.hpp"

namespace plumb {

const StepTimeline& median_step(const Timeline& timeline) {
  if (timeline.steps.empty()) throw InputError("timeline", "has no steps, expected at least one");
  std::vector<std::size_t> order(timeline.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return timeline.steps[a].duration < timeline.steps[b].duration;
  });
  return timeline.steps[order[(order.size() - 1) / 2]];
}

FullestRank fullest_rank(const std::vector<RankSummary>& ranks) {
  const auto fullest = std::max_element(ranks.begin(), ranks.end(), [](const RankSummary& a, const RankSummary& b) {
    return a.peak_bytes < b.peak_bytes;
  });
  if (fullest == ranks.end()) return {};
  return {.rank = static_cast<int>(fullest - ranks.begin()), .summary = *fullest};
}

std::optional<AxisTraffic> most_received(const Timeline& timeline) {
  if (timeline.ranks.empty()) return std::nullopt;
  AxisTraffic most;
  for (const RankSummary& rank : timeline.ranks) {
    if (!rank.by_axis) return std::nullopt;
    for (const auto axis : {&AxisTraffic::tensor, &AxisTraffic::data, &AxisTraffic::pipeline}) {
      most.*axis = std::max(most.*axis, (*rank.by_axis).*axis);
    }
  }
  return most;
}

int ranks_of(const Timeline& timeline) { return timeline.layout ? ranks(*timeline.layout) : timeline.schedule.ranks; }

int pipeline_rank(const Timeline& timeline, int rank) {
  if (!timeline.layout) return rank;
  return coordinates(*timeline.layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline));
}

Seconds uncertainty_between(const Timeline& timeline, int rank, int other) {
  if (rank == other) return {};
  const std::vector<int>& clocks = timeline.clock_of_rank;
  if (clocks.empty()) return timeline.clock_uncertainty;
  const bool one = clocks.at(static_cast<std::size_t>(rank)) == clocks.at(static_cast<std::size_t>(other));
  return one ? Seconds{} : timeline.clock_uncertainty;
}

StepTimeline ordered_step(std::vector<Event> events) {
  const auto by_rank = [](const Event& a, const Event& b) { return a.rank < b.rank; };
  const auto by_time = [](const Event& a, const Event& b) {
    return std::tie(a.start, a.action, a.end) < std::tie(b.start, b.action, b.end);
  };
  StepTimeline step;
  for (const Event& event : events) step.duration = std::max(step.duration, event.end);
  // Graphs and logs are in the order of the ranks already, and many short sorts are faster than one.
  if (!std::ranges::is_sorted(events, by_rank)) std::ranges::stable_sort(events, by_rank);
  for (auto first = events.begin(); first != events.end();) {
    const auto last = std::upper_bound(first, events.end(), *first, by_rank);
    std::sort(first, last, by_time);
    first = last;
  }
  step.events = std::move(events);
  return step;
}

Track track_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::input_gradient:
    case ActionKind::weight_gradient:
    case ActionKind::recompute:
    case ActionKind::optimizer_step:
      return Track::compute;
    case ActionKind::receive_forward:
      return Track::receive_forward;
    case ActionKind::receive_backward:
      return Track::receive_backward;
    case ActionKind::broadcast:
    case ActionKind::all_reduce:
    case ActionKind::reduce:
    case ActionKind::reduce_tied:
    case ActionKind::reduce_gradient:
    case ActionKind::unshard:
    case ActionKind::reshard:
    case ActionKind::clip_gradients:
      return Track::collective;
    case ActionKind::send_forward:
    case ActionKind::send_backward:
      return Track::send;
    case ActionKind::evict:
    case ActionKind::load:
      return Track::host_copy;
  }
  return Track::compute;
}

std::string_view track_name(Track track) {
  switch (track) {
    case Track::compute:
      return "compute";
    case Track::receive_forward:
      return "receive forward";
    case Track::receive_backward:
      return "receive backward";
    case Track::collective:
      return "collective";
    case Track::send:
      return "send";
    case Track::host_copy:
      return "host copy";
  }
  return "";
}

}  // namespace plumb
