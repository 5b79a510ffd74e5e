#include "common/graph/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/stop.hpp"
#include "common/graph/exchange_steps.hpp"

namespace plumb {
namespace {

// Per node that occupies its rank the one that does so next.
std::vector<NodeId> next_of_rank(const ScheduleGraph& graph) {
  std::vector<NodeId> next(graph.nodes.size(), no_node);
  for (const std::vector<NodeId>& order : graph.rank_order) {
    for (std::size_t i = 1; i < order.size(); ++i) next[order[i - 1]] = order[i];
  }
  return next;
}

template <class DurationOf>
Evaluation longest_paths(const ScheduleGraph& graph, const DurationOf& duration_of, std::span<const Seconds> gaps,
                         std::span<const Seconds> sends) {
  Evaluation evaluation;
  evaluation.start.assign(graph.nodes.size(), Seconds{});
  evaluation.end.assign(graph.nodes.size(), Seconds{});
  const std::vector<NodeId> next_on_rank = sends.empty() ? std::vector<NodeId>{} : next_of_rank(graph);
  for (const NodeId node : graph.topological_order) {
    look_at_stop();
    Seconds& start = evaluation.start[node];
    if (!gaps.empty()) start += gaps[node];
    const Seconds end = start + duration_of(node);
    evaluation.end[node] = end;
    evaluation.makespan = std::max(evaluation.makespan, end);
    for (const auto next : successors(graph, node)) {
      evaluation.start[next] = std::max(evaluation.start[next], end);
    }
    if (sends.empty() || next_on_rank[node] == no_node) continue;
    Seconds& next_start = evaluation.start[next_on_rank[node]];
    next_start = std::max(next_start, end + sends[node]);
  }
  return evaluation;
}

}  // namespace

Evaluation evaluate(const ScheduleGraph& graph) {
  return longest_paths(graph, [&](NodeId node) { return graph.nodes[node].duration; }, {}, {});
}

Evaluation evaluate(const ScheduleGraph& graph, std::span<const Seconds> durations, std::span<const Seconds> gaps,
                    std::span<const Seconds> sends) {
  const std::size_t count = graph.nodes.size();
  const auto fits = [&](std::span<const Seconds> times) { return times.empty() || times.size() == count; };
  if (durations.size() != count || !fits(gaps) || !fits(sends)) {
    throw InputError("graph", fmt::format("{} nodes, but {} durations, {} gaps and {} times of sends", count,
                                          durations.size(), gaps.size(), sends.size()));
  }
  return longest_paths(
      graph, [&](NodeId node) { return durations[node]; }, gaps, sends);
}

std::vector<NodeId> critical_path(const ScheduleGraph& graph, const Evaluation& evaluation) {
  if (graph.nodes.empty()) return {};
  // Of each node the predecessor that ended last, the smallest id among equals.
  std::vector<NodeId> last_before(graph.nodes.size(), no_node);
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    for (const auto next : successors(graph, node)) {
      NodeId& last = last_before[next];
      if (last == no_node || evaluation.end[node] > evaluation.end[last]) last = node;
    }
  }
  std::vector<NodeId> path;
  const auto latest = std::ranges::max_element(evaluation.end);
  for (auto node = static_cast<NodeId>(latest - evaluation.end.begin()); node != no_node; node = last_before[node]) {
    path.push_back(node);
  }
  std::ranges::reverse(path);
  return path;
}

Bubbles bubbles(const ScheduleGraph& graph, const Evaluation& evaluation) {
  Seconds busy;
  Seconds longest_span;
  for (const std::vector<NodeId>& order : graph.rank_order) {
    const auto computes = [&](NodeId node) { return graph.nodes[node].kind == NodeKind::compute; };
    const auto first = std::ranges::find_if(order, computes);
    const auto last = std::find_if(order.rbegin(), order.rend(), computes);
    if (first == order.end()) continue;
    longest_span = std::max(longest_span, evaluation.end[*last] - evaluation.start[*first]);
    for (const NodeId node : order) {
      if (computes(node)) busy += evaluation.end[node] - evaluation.start[node];
    }
  }
  busy = busy / static_cast<double>(std::max(graph.ranks, 1));
  Bubbles result{.makespan = evaluation.makespan - busy, .span = longest_span - busy};
  if (evaluation.makespan.value > 0) result.makespan_fraction = result.makespan / evaluation.makespan;
  if (longest_span.value > 0) result.span_fraction = result.span / longest_span;
  return result;
}

}  // namespace plumb
