#include "common/timeline/diff/diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/graph/evaluate.hpp"
#include "common/timeline/chart/time_axis.hpp"
#include "common/timeline/diff/clock_uncertainty.hpp"
#include "common/timeline/diff/measured_order.hpp"
#include "common/timeline/diff/replay.hpp"
#include "common/timeline/diff/straggler.hpp"

namespace plumb {
namespace {

constexpr double small_fraction = 1e-4;      // causes below this part of the measured step are told together
constexpr double rounding_fraction = 1e-12;  // of the measured step: what sums of doubles leave over
constexpr std::size_t listed_actions = 3;

// Nodes by stage and kind of compute, and the others by their kind.
struct NodeClasses {
  std::vector<std::array<std::vector<NodeId>, compute_kinds.size()>> compute;  // per stage
  std::vector<NodeId> optimizer;
  std::vector<NodeId> transfers;
  std::vector<NodeId> collectives;
};

NodeClasses classes_of(const ScheduleGraph& graph, int stage_count) {
  NodeClasses classes;
  classes.compute.resize(static_cast<std::size_t>(stage_count));
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.kind == NodeKind::compute) {
      const auto kind = static_cast<std::size_t>(node.action.kind);
      classes.compute[static_cast<std::size_t>(node.action.stage)][kind].push_back(id);
    } else if (node.kind == NodeKind::optimizer) {
      classes.optimizer.push_back(id);
    } else {
      const bool moved = node.kind == NodeKind::transfer || node.kind == NodeKind::host_copy;
      (moved ? classes.transfers : classes.collectives).push_back(id);
    }
  }
  return classes;
}

struct Change {
  NodeId node = 0;
  Seconds by;
};

// The largest changes that speak for the cause: of its own direction, those on the critical path first.
std::vector<std::string> largest(const ScheduleGraph& graph, std::vector<Change> changes, Seconds effect,
                                 const std::vector<NodeId>& path) {
  std::vector<bool> on_path(graph.nodes.size());
  for (const NodeId node : path) on_path[node] = true;
  const double direction = effect.value < 0 ? -1 : 1;
  std::erase_if(changes, [&](const Change& change) { return change.by.value * direction <= 0; });
  const auto before = [&](const Change& a, const Change& b) {
    if (on_path[a.node] != on_path[b.node]) return static_cast<bool>(on_path[a.node]);
    if (a.by != b.by) return std::abs(a.by.value) > std::abs(b.by.value);
    return a.node < b.node;
  };
  const std::size_t count = std::min(listed_actions, changes.size());
  std::partial_sort(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(count), changes.end(), before);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    const Node& node = graph.nodes[changes[i].node];
    texts.push_back(fmt::format("rank {}: {} {}", node.rank, to_string(node.action), signed_text(changes[i].by)));
  }
  return texts;
}

// The graph with the durations and gaps put in so far.
class Substitution {
 public:
  Substitution(const Timeline& predicted, const Timeline& measured)
      : predicted_run_(predicted),
        measured_run_(measured),
        graph_(graph_of(predicted)),
        current_(measured_durations(graph_, median_step(predicted))),
        measured_(measured_durations(graph_, median_step(measured))),
        uncertainty_(node_uncertainty(graph_, predicted, measured)),
        evaluation_(evaluated()) {}

  [[nodiscard]] Seconds step() const { return evaluation_.makespan; }
  [[nodiscard]] const ScheduleGraph& graph() const { return graph_; }
  [[nodiscard]] const std::vector<Seconds>& predicted_durations() const { return current_.durations; }
  [[nodiscard]] const std::vector<Seconds>& measured_durations_of_nodes() const { return measured_.durations; }

  // Puts in the measured durations of `nodes`, but for differences that may be those of the hosts' clocks.
  DiffCause put_in(const std::string& name, const std::vector<NodeId>& nodes) {
    std::vector<Change> changes;
    Seconds uncertainty;
    for (const NodeId node : nodes) {
      const Seconds by = measured_.durations[node] - current_.durations[node];
      if (may_be_of_clocks(by, uncertainty_.durations[node])) continue;
      uncertainty = std::max(uncertainty, uncertainty_.durations[node]);
      changes.push_back({node, by});
      current_.durations[node] = measured_.durations[node];
    }
    return reevaluate(name, std::move(changes), uncertainty);
  }

  // Of one host, so that no clocks differ.
  DiffCause put_in_sends() {
    std::vector<Change> changes;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      const Seconds by = measured_.sends[node] - current_.sends[node];
      if (by != Seconds{}) changes.push_back({node, by});
    }
    current_.sends = measured_.sends;
    return reevaluate("sends", std::move(changes), {});
  }

  // Measured pauses of the hosts; where clocks differ they may seem to be below zero, which is left to the residual.
  DiffCause put_in_gaps() {
    std::vector<Change> changes;
    Seconds uncertainty;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      const Seconds by = measured_gap(node) - current_.gaps[node];
      if (may_be_of_clocks(by, uncertainty_.gaps[node])) continue;
      uncertainty = std::max(uncertainty, uncertainty_.gaps[node]);
      changes.push_back({node, by});
      current_.gaps[node] = measured_gap(node);
    }
    return reevaluate("host gaps", std::move(changes), uncertainty);
  }

  // What was left out above. What one clock is behind another cancels on the way there and back, and shows once in a
  // sum at most: one that is larger is a finding. None of the actions is named, since each by itself is none. Pauses go
  // in as they are, below zero too, or the clocks would cancel only in part.
  DiffCause put_in_uncertain(Seconds clock_uncertainty) {
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      current_.durations[node] = measured_.durations[node];
      const Seconds by = measured_.gaps[node] - current_.gaps[node];
      current_.gaps[node] = may_be_of_clocks(by, uncertainty_.gaps[node]) ? measured_.gaps[node] : measured_gap(node);
    }
    DiffCause cause = reevaluate(between_hosts_cause, {}, {});
    cause.within_clocks = may_be_of_clocks(cause.seconds, clock_uncertainty);
    if (cause.within_clocks) cause.cause = clocks_cause;
    return cause;
  }

  // The order in which the ranks acted. No change of durations. Of a layout of several lanes as planned: one list is
  // that of all lanes, which may have acted in orders of their own.
  DiffCause put_in_order() {
    if (predicted_run_.layout) return {.cause = "order", .seconds = {}, .actions = {}};
    const ReorderedSchedule reordered = in_measured_order(predicted_run_.schedule, graph_, measured_.starts);
    DiffCause cause{.cause = "order", .seconds = {}, .actions = reordered.moved};
    if (reordered.moved.empty()) return cause;
    if (cause.actions.size() > listed_actions) cause.actions.resize(listed_actions);
    ScheduleGraph graph = build_graph(reordered.schedule, predicted_run_.costs);
    MeasuredDurations current;
    const std::vector<NodeId> old = same_nodes(graph, graph_);
    for (const NodeId node : old) {
      current.durations.push_back(current_.durations[node]);
      current.gaps.push_back(current_.gaps[node]);
      current.sends.push_back(current_.sends[node]);
    }
    graph_ = std::move(graph);
    current_ = std::move(current);
    measured_ = measured_durations(graph_, median_step(measured_run_));
    uncertainty_ = node_uncertainty(graph_, predicted_run_, measured_run_);
    const Seconds before = step();
    evaluation_ = evaluated();
    cause.seconds = step() - before;
    return cause;
  }

 private:
  [[nodiscard]] Evaluation evaluated() const {
    return evaluate(graph_, current_.durations, current_.gaps, current_.sends);
  }

  [[nodiscard]] Seconds measured_gap(NodeId node) const { return std::max(Seconds{}, measured_.gaps[node]); }

  DiffCause reevaluate(const std::string& name, std::vector<Change> changes, Seconds uncertainty) {
    Evaluation after = evaluated();
    DiffCause cause{.cause = name, .seconds = after.makespan - evaluation_.makespan, .actions = {}};
    if (cause.seconds != Seconds{}) {
      const Evaluation& telling = cause.seconds.value > 0 ? after : evaluation_;
      cause.actions = largest(graph_, std::move(changes), cause.seconds, critical_path(graph_, telling));
    }
    cause.within_clocks = cause.seconds != Seconds{} && may_be_of_clocks(cause.seconds, uncertainty);
    if (cause.within_clocks) cause.actions.clear();
    evaluation_ = std::move(after);
    return cause;
  }

  const Timeline& predicted_run_;
  const Timeline& measured_run_;
  ScheduleGraph graph_;
  MeasuredDurations current_;
  MeasuredDurations measured_;
  NodeUncertainty uncertainty_;
  Evaluation evaluation_;
};

// Of the ranks that hold a stage (of two replicas the first) the first straggler; else the first.
int telling_rank(const Timeline& timeline, int stage, const std::vector<std::optional<double>>& lagging) {
  const int place = timeline.schedule.rank_of_stage[static_cast<std::size_t>(stage)];
  int first = -1;
  for (int rank = 0; rank < ranks_of(timeline); ++rank) {
    if (pipeline_rank(timeline, rank) != place) continue;
    if (lagging[static_cast<std::size_t>(rank)]) return rank;
    if (first < 0) first = rank;
  }
  return first;
}

std::string compute_name(const DiffCause& cause, ActionKind kind, int stage, int rank,
                         const std::optional<double>& straggler) {
  std::string name =
      fmt::format("{} {} of stage {}", cause.seconds.value > 0 ? "slower" : "faster", letters(kind), stage);
  if (straggler && cause.seconds.value > 0) {
    name += fmt::format(" (straggler: rank {} takes {:.2f} times as long in all it computes as the median rank)", rank,
                        *straggler);
  }
  return name;
}

// Stage by stage and kind by kind, what hardly matters together.
void put_in_compute(Substitution& substitution, const NodeClasses& classes, const Timeline& predicted, Seconds small,
                    std::vector<DiffCause>& causes) {
  const std::vector<std::optional<double>> lagging =
      stragglers(substitution.graph(), substitution.predicted_durations(), substitution.measured_durations_of_nodes());
  DiffCause rest{.cause = "everything else of compute", .seconds = {}, .actions = {}};
  for (std::size_t stage = 0; stage < classes.compute.size(); ++stage) {
    for (std::size_t kind = 0; kind < compute_kinds.size(); ++kind) {
      const std::vector<NodeId>& nodes = classes.compute[stage][kind];
      if (nodes.empty()) continue;
      DiffCause cause = substitution.put_in("", nodes);
      if (std::abs(cause.seconds.value) < small.value) {
        rest.seconds += cause.seconds;
        continue;
      }
      const int rank = telling_rank(predicted, static_cast<int>(stage), lagging);
      cause.cause = compute_name(cause, compute_kinds[kind], static_cast<int>(stage), rank,
                                 lagging[static_cast<std::size_t>(rank)]);
      causes.push_back(std::move(cause));
    }
  }
  causes.push_back(std::move(rest));
}

void require_comparable(const Timeline& predicted, const Timeline& measured) {
  if (predicted.source == TimelineSource::measured && measured.source == TimelineSource::predicted) {
    throw InputError("diff", "the first timeline is a measured one and the second a predicted one",
                     "name the prediction first");
  }
  if (predicted.plan_digest != measured.plan_digest || predicted.schedule != measured.schedule) {
    throw InputError("diff",
                     fmt::format("the two timelines are not of the same plan: '{}' ({}) and '{}' ({})",
                                 predicted.plan_name, predicted.plan_digest, measured.plan_name, measured.plan_digest),
                     "simulate the plan that was run");
  }
}

}  // namespace

std::string clocks_sentence(Seconds clock_uncertainty) {
  return fmt::format(
      "The clocks of the hosts agree within {}: what differs by no more between two hosts is no finding by itself.",
      to_text(clock_uncertainty));
}

double TimelineDiff::prediction_gap() const { return measured > Seconds{} ? predicted / measured - 1 : 0; }

double TimelineDiff::replay_gap() const { return measured > Seconds{} ? replay / measured - 1 : 0; }

bool TimelineDiff::step_within_clocks() const { return may_be_of_clocks(measured - predicted, clock_uncertainty); }

bool TimelineDiff::replay_within_clocks() const { return may_be_of_clocks(replay - measured, clock_uncertainty); }

TimelineDiff diff(const Timeline& predicted, const Timeline& measured) {
  require_comparable(predicted, measured);
  if (predicted.layout.has_value() != measured.layout.has_value()) {
    const Layout& layout = predicted.layout ? *predicted.layout : *measured.layout;
    return diff(of_all_ranks(predicted, layout), of_all_ranks(measured, layout));
  }
  const StepTimeline& prediction = median_step(predicted);
  const StepTimeline& run = median_step(measured);
  Substitution substitution(predicted, measured);
  TimelineDiff result{.predicted = prediction.duration,
                      .measured = run.duration,
                      .replay = replay(substitution.graph(), run).step,
                      .causes = {},
                      .clock_uncertainty = predicted.clock_uncertainty + measured.clock_uncertainty};
  const Seconds small = result.measured * small_fraction;
  const NodeClasses classes = classes_of(substitution.graph(), all_stages(predicted.schedule));
  put_in_compute(substitution, classes, predicted, small, result.causes);
  if (!classes.optimizer.empty()) result.causes.push_back(substitution.put_in("optimizer", classes.optimizer));
  result.causes.push_back(substitution.put_in("transfers", classes.transfers));
  result.causes.push_back(substitution.put_in_sends());
  if (!classes.collectives.empty()) result.causes.push_back(substitution.put_in("collectives", classes.collectives));
  result.causes.push_back(substitution.put_in_order());
  result.causes.push_back(substitution.put_in_gaps());
  if (result.clock_uncertainty > Seconds{}) {
    result.causes.push_back(substitution.put_in_uncertain(result.clock_uncertainty));
  }
  Seconds explained;
  for (const DiffCause& cause : result.causes) explained += cause.seconds;
  Seconds residual = result.measured - result.predicted - explained;
  if (std::abs(residual.value) < rounding_fraction * result.measured.value) residual = {};
  const bool of_clocks = residual != Seconds{} && may_be_of_clocks(residual, result.clock_uncertainty);
  result.causes.push_back({.cause = "residual", .seconds = residual, .actions = {}, .within_clocks = of_clocks});
  return result;
}

}  // namespace plumb
