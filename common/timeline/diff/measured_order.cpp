#include "common/timeline/diff/measured_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/schedule/reductions.hpp"

namespace plumb {
namespace {

// Node ids, sorted by where and what they are.
std::vector<NodeId> sorted_nodes(const ScheduleGraph& graph) {
  std::vector<NodeId> ids(graph.nodes.size());
  std::iota(ids.begin(), ids.end(), NodeId{0});
  std::ranges::sort(ids, {}, [&](NodeId id) { return std::tuple(graph.nodes[id].rank, graph.nodes[id].action); });
  return ids;
}

}  // namespace

static WeightGathering gathering_of(const Schedule& lowered) {
  WeightGathering gathering = WeightGathering::none;
  for (const std::vector<Action>& list : lowered.actions) gathering = std::max(gathering, gathering_of(list));
  return gathering;
}

ReorderedSchedule in_measured_order(const Schedule& lowered, const ScheduleGraph& graph,
                                    const std::vector<Seconds>& starts) {
  ReorderedSchedule result{.schedule = lowered, .moved = {}};
  // Where evictions stand among the compute actions decides what they wait for: such lists are taken as planned.
  if (evicts(lowered)) return result;
  for (std::size_t rank = 0; rank < graph.rank_order.size(); ++rank) {
    std::vector<NodeId> planned = graph.rank_order[rank];
    const bool updates_within = lowered.update_every > 0;
    std::erase_if(planned, [&](NodeId node) { return graph.nodes[node].kind != NodeKind::compute && !updates_within; });
    std::vector<NodeId> acted = planned;
    std::ranges::stable_sort(acted, {}, [&](NodeId node) { return starts[node]; });
    std::vector<Action>& list = result.schedule.actions[rank];
    list.clear();
    for (const NodeId node : acted) list.push_back(graph.nodes[node].action);
    const auto [first, instead] = std::ranges::mismatch(planned, acted);
    if (first == planned.end()) continue;
    result.moved.push_back(fmt::format("rank {}: {} ran where {} was planned", rank,
                                       to_string(graph.nodes[*instead].action), to_string(graph.nodes[*first].action)));
  }
  if (result.moved.empty()) {
    result.schedule = lowered;
  } else {
    result.schedule = lower(result.schedule, {.optimizer = has_action(lowered, ActionKind::optimizer_step),
                                              .data_parallel = has_action(lowered, ActionKind::reduce_gradient),
                                              .clips_gradients = has_action(lowered, ActionKind::clip_gradients),
                                              .tied_embeddings = has_action(lowered, ActionKind::reduce_tied),
                                              .gathering = gathering_of(lowered)});
  }
  return result;
}

std::vector<NodeId> same_nodes(const ScheduleGraph& graph, const ScheduleGraph& other) {
  const std::vector<NodeId> here = sorted_nodes(graph);
  const std::vector<NodeId> there = sorted_nodes(other);
  std::vector<NodeId> result(here.size());
  for (std::size_t i = 0; i < here.size(); ++i) result[here[i]] = there[i];
  return result;
}

}  // namespace plumb
