#include "common/timeline/diff/replay.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/all_lanes.hpp"
#include "common/layout/lane.hpp"
#include "common/schedule/reductions.hpp"

namespace plumb {
namespace {

// The events of a step by rank and action.
class EventIndex {
 public:
  explicit EventIndex(const StepTimeline& step) {
    events_.reserve(step.events.size());
    for (const Event& event : step.events) events_.push_back(&event);
    std::sort(events_.begin(), events_.end(), [](const Event* a, const Event* b) { return key(*a) < key(*b); });
    const auto twice = std::adjacent_find(events_.begin(), events_.end(),
                                          [](const Event* a, const Event* b) { return key(*a) == key(*b); });
    if (twice != events_.end()) {
      throw InputError("timeline", "has " + to_string((*twice)->action) + " twice on rank " +
                                       std::to_string((*twice)->rank) + " in one step");
    }
  }

  // Null if there is none.
  [[nodiscard]] const Event* find(int rank, const Action& action) const {
    const auto found = std::lower_bound(events_.begin(), events_.end(), std::tuple(rank, action),
                                        [](const Event* event, const auto& wanted) { return key(*event) < wanted; });
    return found != events_.end() && key(**found) == std::tuple(rank, action) ? *found : nullptr;
  }

  // The rank's first of a kind.
  [[nodiscard]] const Event* find(int rank, ActionKind kind) const {
    const auto found = std::lower_bound(
        events_.begin(), events_.end(), std::tuple(rank, kind),
        [](const Event* event, const auto& wanted) { return std::tuple(event->rank, event->action.kind) < wanted; });
    return found != events_.end() && (*found)->rank == rank && (*found)->action.kind == kind ? *found : nullptr;
  }

 private:
  static std::tuple<int, Action> key(const Event& event) { return {event.rank, event.action}; }

  std::vector<const Event*> events_;
};

struct Interval {
  Seconds start;
  Seconds end;
};

Interval interval(const Event& event) { return {event.start, event.end}; }

[[noreturn]] void throw_missing(const Node& node) {
  throw InputError("timeline",
                   "has no event of " + to_string(node.action) + " on rank " + std::to_string(node.rank) +
                       ", which the schedule holds",
                   "was the step cut short, or is it of another plan?");
}

// The same action of another kind: its stage and microbatch.
Action as(const Action& action, ActionKind kind) {
  return {.kind = kind, .stage = action.stage, .microbatch = action.microbatch};
}

// A backward that one side split into I and W and the other did not: B is their sum. Where I and W are wanted of a
// whole B, they take the parts that the graph's own durations have.
Interval split_backward(const EventIndex& events, const Node& node, double input_part) {
  if (node.action.kind == ActionKind::backward) {
    const Event* input = events.find(node.rank, as(node.action, ActionKind::input_gradient));
    const Event* weight = events.find(node.rank, as(node.action, ActionKind::weight_gradient));
    if (input == nullptr || weight == nullptr) throw_missing(node);
    return {input->start, input->end + (weight->end - weight->start)};
  }
  const Event* whole = events.find(node.rank, as(node.action, ActionKind::backward));
  const bool is_input = node.action.kind == ActionKind::input_gradient;
  if (whole == nullptr || (!is_input && node.action.kind != ActionKind::weight_gradient)) throw_missing(node);
  const Seconds middle = whole->start + (whole->end - whole->start) * input_part;
  return is_input ? Interval{whole->start, middle} : Interval{middle, whole->end};
}

// Both ranks of a collective hold an event, each of its own stage; it starts when the later one enters.
Interval collective(const EventIndex& events, const Node& node, int stages) {
  const Event* own = events.find(node.rank, node.action);
  const Event* other = node.peer >= 0 ? events.find(node.peer, other_half(node.action, stages)) : nullptr;
  if (own == nullptr) own = other;
  if (own == nullptr) throw_missing(node);
  if (other == nullptr) return interval(*own);
  const Seconds end = std::max(own->end, other->end);
  return {std::min(end, std::max(own->start, other->start)), end};
}

// Per stage: I / (I + W) in the graph, one half where it has neither.
std::vector<double> input_parts(const ScheduleGraph& graph) {
  int last_stage = 0;
  for (const Node& node : graph.nodes) last_stage = std::max(last_stage, node.action.stage);
  std::vector<Seconds> input(static_cast<std::size_t>(last_stage) + 1);
  std::vector<Seconds> weight(input.size());
  for (const Node& node : graph.nodes) {
    const auto stage = static_cast<std::size_t>(node.action.stage);
    if (node.action.kind == ActionKind::input_gradient) input[stage] += node.duration;
    if (node.action.kind == ActionKind::weight_gradient) weight[stage] += node.duration;
  }
  std::vector<double> parts;
  for (std::size_t stage = 0; stage < input.size(); ++stage) {
    const Seconds both = input[stage] + weight[stage];
    parts.push_back(both.value > 0 ? input[stage] / both : 0.5);
  }
  return parts;
}

// Of a group of any size all have an event, and begin when the last of them has come.
Interval group_collective(const EventIndex& events, const Node& node, const std::vector<int>& ranks) {
  Interval whole;
  const auto place_of = [&](int rank) { return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin()); };
  for (Node of_rank = node; const int rank : ranks) {
    of_rank.rank = rank;
    const bool clips = node.action.kind == ActionKind::clip_gradients;  // of which each rank names a stage of its own
    // So does what joins the parts of a vocabulary, which stand in the order of the pipeline's ranks.
    if (joins_parts(node.action.kind)) of_rank.action.stage = node.action.stage + place_of(rank) - place_of(node.rank);
    const Event* event = clips ? events.find(rank, node.action.kind) : events.find(rank, of_rank.action);
    if (event == nullptr) throw_missing(of_rank);
    whole.start = std::max(whole.start, event->start);
    whole.end = std::max(whole.end, event->end);
  }
  return {std::min(whole.start, whole.end), whole.end};
}

Interval interval_of(const EventIndex& events, const ScheduleGraph& graph, const Node& node,
                     const std::vector<double>& parts) {
  if (node.group >= 0) return group_collective(events, node, graph.groups[static_cast<std::size_t>(node.group)]);
  if (node.kind == NodeKind::collective) return collective(events, node, static_cast<int>(parts.size()));
  if (const Event* event = events.find(node.rank, node.action)) return interval(*event);
  return split_backward(events, node, parts[static_cast<std::size_t>(node.action.stage)]);
}

// Over HSDP's copies ranks add up what they have reduced within a copy, in the same action: its event is the node's
// that reduces, and at its end all copies have waited for each other.
class WaitingCollectives {
 public:
  explicit WaitingCollectives(const ScheduleGraph& graph) : graph_(graph) {}

  // Asked of the graph's nodes in their order.
  [[nodiscard]] bool is_one(const Node& node) {
    if (node.group < 0 || node.action.kind != ActionKind::reduce_gradient) return false;
    bool all_known = true;
    for (const int rank : graph_.groups[static_cast<std::size_t>(node.group)]) {
      all_known = !reduced_.emplace(rank, node.action.stage).second && all_known;
    }
    return all_known;
  }

 private:
  const ScheduleGraph& graph_;
  std::set<std::pair<int, std::int32_t>> reduced_;  // ranks and their stages
};

// Each send counts behind the node of its rank that began last before it.
std::vector<Seconds> measured_sends(const ScheduleGraph& graph, const StepTimeline& step,
                                    const std::vector<Seconds>& starts) {
  std::vector<std::vector<NodeId>> begun = graph.rank_order;  // per rank, as they began
  for (std::vector<NodeId>& nodes : begun) {
    std::ranges::stable_sort(nodes, {}, [&](NodeId node) { return starts[node].value; });
  }
  std::vector<Seconds> sends(graph.nodes.size());
  for (const Event& event : step.events) {
    if (!is_send(event.action.kind)) continue;
    const std::vector<NodeId>& nodes = begun.at(static_cast<std::size_t>(event.rank));
    const auto next =
        std::ranges::upper_bound(nodes, event.start.value, {}, [&](NodeId node) { return starts[node].value; });
    if (next != nodes.begin()) sends[*std::prev(next)] += event.end - event.start;
  }
  return sends;
}

}  // namespace

MeasuredDurations measured_durations(const ScheduleGraph& graph, const StepTimeline& step) {
  const EventIndex events(step);
  const std::vector<double> parts = input_parts(graph);
  const std::size_t count = graph.nodes.size();
  MeasuredDurations measured;
  std::vector<Seconds> ends(count);
  measured.starts.resize(count);
  measured.durations.resize(count);
  WaitingCollectives waiting(graph);
  for (std::size_t i = 0; i < count; ++i) {
    Interval when = interval_of(events, graph, graph.nodes[i], parts);
    if (waiting.is_one(graph.nodes[i])) when.start = when.end;
    measured.starts[i] = when.start;
    measured.durations[i] = when.end - when.start;
    ends[i] = when.end;
  }
  measured.sends = measured_sends(graph, step, measured.starts);
  std::vector<Seconds> ready(count);
  for (NodeId node = 0; node < count; ++node) {
    for (const auto next : successors(graph, node)) ready[next] = std::max(ready[next], ends[node]);
  }
  for (const std::vector<NodeId>& order : graph.rank_order) {
    for (std::size_t i = 1; i < order.size(); ++i) {
      ready[order[i]] = std::max(ready[order[i]], ends[order[i - 1]] + measured.sends[order[i - 1]]);
    }
  }
  measured.gaps.resize(count);
  for (std::size_t i = 0; i < count; ++i) measured.gaps[i] = measured.starts[i] - ready[i];
  return measured;
}

ScheduleGraph graph_of(const Timeline& timeline) {
  ScheduleGraph graph = build_graph(timeline.schedule, timeline.costs);
  return timeline.layout ? in_all_lanes(graph, timeline.costs, *timeline.layout) : graph;
}

Timeline of_all_ranks(Timeline timeline, const Layout& layout) {
  if (timeline.layout) return timeline;
  const std::vector<Lane> lanes = lanes_of(layout);
  for (StepTimeline& step : timeline.steps) {
    std::vector<Event> events;
    events.reserve(step.events.size() * lanes.size());
    for (const Lane& lane : lanes) {
      const auto at = [&](int rank) { return lane.ranks.at(static_cast<std::size_t>(rank)); };
      for (Event event : step.events) {
        event.rank = at(event.rank);
        if (event.peer >= 0) event.peer = at(event.peer);
        events.push_back(event);
      }
    }
    step = ordered_step(std::move(events));
  }
  std::vector<RankSummary> summaries(timeline.ranks.empty() ? 0 : static_cast<std::size_t>(ranks(layout)));
  for (std::size_t rank = 0; rank < summaries.size(); ++rank) {
    const int place = lane_of(layout, static_cast<int>(rank)).pipeline_rank;
    summaries[rank] = timeline.ranks.at(static_cast<std::size_t>(place));
  }
  timeline.ranks = std::move(summaries);
  timeline.layout = layout;
  return timeline;
}

Replay replay(const ScheduleGraph& graph, const StepTimeline& step) {
  if (!(step.duration.value > 0)) throw InputError("timeline", "the step to replay takes no time");
  const MeasuredDurations measured = measured_durations(graph, step);
  const Seconds rebuilt = evaluate(graph, measured.durations, {}, measured.sends).makespan;
  return {.step = rebuilt, .error_fraction = (rebuilt - step.duration) / step.duration};
}

}  // namespace plumb
