#include "common/graph/unfold.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/exchange_steps.hpp"
#include "common/graph/unfolded_nodes.hpp"

namespace plumb {
namespace {

// Parts that add up to a node's duration so nearly are not scaled: they differ by rounding.
constexpr double equal = 1e-9;

class Unfolder {
 public:
  Unfolder(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
           const UnfoldingDetails& details)
      : folded_(folded), costs_(costs), layout_(layout), details_(details) {
    if (folded.ranks != layout.pipeline ||
        details.stages.size() != costs.stages.size() * static_cast<std::size_t>(details.slices)) {
      throw InputError("graph", "the folded graph is not of this layout's pipeline of " +
                                    std::to_string(layout.pipeline) + " ranks");
    }
    result_.stride = pipeline_stride(layout);
    for (int rank = 0; rank < ranks(layout); ++rank) {
      if (coordinate(rank, MeshAxis::pipeline) == 0) result_.lane_base.push_back(rank);
    }
    result_.lanes = static_cast<int>(result_.lane_base.size());
    result_.graph.ranks = ranks(layout);
    lane_of_rank_.resize(static_cast<std::size_t>(ranks(layout)));
    for (int lane = 0; lane < result_.lanes; ++lane) {
      for (int stage = 0; stage < layout.pipeline; ++stage) {
        lane_of_rank_[static_cast<std::size_t>(rank_in_lane(result_, stage, lane))] = lane;
      }
    }
    tensor_groups_ = groups_along(MeshAxis::tensor);
    data_groups_ = groups_along(MeshAxis::data);
  }

  UnfoldedGraph build() {
    const std::size_t count = folded_.nodes.size() * static_cast<std::size_t>(result_.lanes);
    result_.first.assign(count, no_node);
    result_.last.assign(count, no_node);
    find_hidden_reductions();
    for (const NodeId id : folded_.topological_order) {
      if (has_gate_[id]) add_gates(id);
      add_node(id);
    }
    for (NodeId id = 0; id < folded_.nodes.size(); ++id) {
      for (const auto next : successors(folded_, id)) join(id, static_cast<NodeId>(next));
    }
    for (std::size_t at = 0; at < gates_.size(); ++at) {
      if (gates_[at] != no_node) nodes_.edge(gates_[at], result_.first[at]);
    }
    nodes_.finish();
    return std::move(result_);
  }

 private:
  struct LaneGroup {
    std::vector<int> lanes;
    std::vector<std::int32_t> id_at_stage;  // in `groups`, by folded rank
  };

  [[nodiscard]] int coordinate(int rank, MeshAxis axis) const {
    return coordinates(layout_, rank).at(static_cast<std::size_t>(axis));
  }

  std::vector<LaneGroup> groups_along(MeshAxis axis) {
    std::vector<LaneGroup> groups;
    for (int lane = 0; lane < result_.lanes; ++lane) {
      if (coordinate(rank_in_lane(result_, 0, lane), axis) != 0) continue;
      LaneGroup found;
      for (int stage = 0; stage < layout_.pipeline; ++stage) {
        std::vector<int> members = group(layout_, rank_in_lane(result_, stage, lane), axis);
        std::ranges::sort(members);
        if (stage == 0) {
          for (const int rank : members) found.lanes.push_back(lane_of_rank_[static_cast<std::size_t>(rank)]);
        }
        found.id_at_stage.push_back(static_cast<std::int32_t>(result_.graph.groups.size()));
        result_.graph.groups.push_back(std::move(members));
      }
      groups.push_back(std::move(found));
    }
    return groups;
  }

  NodeId& first(NodeId folded, int lane) { return result_.first[index(folded, lane)]; }
  NodeId& last(NodeId folded, int lane) { return result_.last[index(folded, lane)]; }
  [[nodiscard]] std::size_t index(NodeId folded, int lane) const {
    return static_cast<std::size_t>(folded) * static_cast<std::size_t>(result_.lanes) + static_cast<std::size_t>(lane);
  }

  // A reduction whose folded node has only what the action before does not hide starts together with that action.
  void find_hidden_reductions() {
    has_gate_.assign(folded_.nodes.size(), false);
    beside_.assign(folded_.nodes.size(), no_node);
    for (NodeId id = 0; id < folded_.nodes.size(); ++id) {
      const Node& action = folded_.nodes[id];
      if (action.kind != NodeKind::compute || action.duration.value <= 0) continue;
      for (const auto next : successors(folded_, id)) {
        const Node& node = folded_.nodes[next];
        if (!is_folded(node)) continue;
        const Seconds whole = time_of(of_stage(node.action).reduction);
        const Seconds left = std::max(whole - action.duration, Seconds{});
        const double tolerance = equal * whole.value;
        const bool hidden = (whole - node.duration).value > tolerance;
        if (!hidden || std::abs((left - node.duration).value) > tolerance) continue;
        has_gate_[id] = true;
        beside_[next] = id;
      }
    }
    gates_.assign(result_.first.size(), no_node);
  }

  // What the action and the reduction beside it start after.
  void add_gates(NodeId id) {
    const Node& node = folded_.nodes[id];
    for (int lane = 0; lane < result_.lanes; ++lane) {
      gates_[index(id, lane)] = nodes_.emit({.kind = NodeKind::compute,
                                             .action = node.action,
                                             .rank = rank_in_lane(result_, node.rank, lane),
                                             .bytes = {},
                                             .duration = {}});
    }
  }

  void add_node(NodeId id) {
    const Node& node = folded_.nodes[id];
    if (is_folded(node)) return add_reduction(id);
    if (occupies_rank(node)) {
      const std::vector<ActionPart>& parts = parts_of(node.action);
      if (layout_.tensor.degree > 1 && !parts.empty() && node.duration.value > 0) {
        const double factor = factor_of(node.duration, time_of(parts, details_.collectives));
        for (const LaneGroup& group : tensor_groups_) add_parts(id, group, parts, factor);
        return;
      }
    }
    for (int lane = 0; lane < result_.lanes; ++lane) first(id, lane) = last(id, lane) = nodes_.emit(in(node, lane));
  }

  // The folded node as a lane has it.
  Node in(Node node, int lane) {
    const Node folded = node;
    node.rank = rank_in_lane(result_, folded.rank, lane);
    if (folded.peer < 0) return node;
    node.peer = rank_in_lane(result_, folded.peer, lane);
    // The latency is the folded one's, also where stages and machines do not divide each other.
    Flow flow{.latency = transfer_between(costs_, folded.peer, folded.rank).latency};
    if (folded.kind == NodeKind::transfer) flow.latency += gathering_time(costs_, folded.action.microbatch);
    if (folded.flow >= 0) flow = folded_.flows[static_cast<std::size_t>(folded.flow)];
    node.flow = flow_index(result_.graph, flow);
    return node;
  }

  // What is done once a step is the same in all slices.
  const StageParts& of_stage(const Action& action) const {
    const int slice = std::max(0, action.microbatch) % details_.slices;
    return details_.stages[static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(details_.slices) +
                           static_cast<std::size_t>(slice)];
  }

  const std::vector<ActionPart>& parts_of(const Action& action) const {
    const StageParts& stage = of_stage(action);
    switch (action.kind) {
      case ActionKind::input_gradient:
        return stage.input_gradient;
      case ActionKind::weight_gradient:
        return stage.weight_gradient;
      case ActionKind::backward:
        return stage.backward;
      case ActionKind::optimizer_step:
        return stage.optimizer;
      default:
        return stage.forward;
    }
  }

  static double factor_of(Seconds wanted, Seconds found) {
    if (found.value <= 0) return 1;
    const double factor = wanted / found;
    return std::abs(factor - 1) < equal ? 1 : factor;
  }

  void add_reduction(NodeId id) {
    const Node& node = folded_.nodes[id];
    const CollectivePlan& plan = of_stage(node.action).reduction;
    if (plan.count == 0) {  // nobody to reduce with
      for (int lane = 0; lane < result_.lanes; ++lane) first(id, lane) = last(id, lane) = nodes_.emit(in(node, lane));
      return;
    }
    const double factor = beside_[id] != no_node ? 1 : factor_of(node.duration, time_of(plan));
    for (const LaneGroup& group : data_groups_) {
      const auto begin = static_cast<NodeId>(result_.graph.nodes.size());
      const NodeId end =
          nodes_.add_collective(node, group.id_at_stage[static_cast<std::size_t>(node.rank)], plan, factor);
      for (const int lane : group.lanes) {
        first(id, lane) = begin;
        last(id, lane) = end;
      }
    }
  }

  // What the next part of a group waits for: of each rank what it computed last, and the collective of all.
  struct Front {
    std::vector<NodeId> computed;
    NodeId collective = no_node;
  };

  std::vector<NodeId> waited_for(const Front& front) const {
    std::vector<NodeId> nodes;
    std::ranges::copy_if(front.computed, std::back_inserter(nodes), [](NodeId node) { return node != no_node; });
    if (front.collective != no_node) nodes.push_back(front.collective);
    return nodes;
  }

  // A node for each rank of the group.
  Front add_computing(const Node& folded, const LaneGroup& group, const Front& front, Seconds time) {
    Front next;
    for (std::size_t i = 0; i < group.lanes.size(); ++i) {
      const NodeId id = nodes_.emit({.kind = folded.kind,
                                     .action = folded.action,
                                     .rank = rank_in_lane(result_, folded.rank, group.lanes[i]),
                                     .bytes = {},
                                     .duration = time});
      if (!front.computed.empty()) nodes_.edge(front.computed[i], id);
      nodes_.edge(front.collective, id);
      next.computed.push_back(id);
    }
    return next;
  }

  void add_parts(NodeId id, const LaneGroup& group, const std::vector<ActionPart>& parts, double factor) {
    const Node& node = folded_.nodes[id];
    const std::int32_t group_id = group.id_at_stage[static_cast<std::size_t>(node.rank)];
    Front front;
    const auto mark = [&](bool begins) {
      for (std::size_t i = 0; i < group.lanes.size(); ++i) {
        (begins ? first(id, group.lanes[i]) : last(id, group.lanes[i])) = front.computed[i];
      }
    };
    const auto compute = [&](Seconds time) {
      const bool begins = front.computed.empty() && front.collective == no_node;
      front = add_computing(node, group, front, time * factor);
      if (begins) mark(true);
    };
    // Each rank's detail begins and ends with a node of its own.
    if (parts.front().beside || parts.front().compute.value == 0) compute({});
    for (const ActionPart& part : parts) {
      const Front before = front;
      if (part.compute.value > 0) compute(part.compute);
      if (part.collective < 0) continue;
      const Front& waits = part.beside ? before : front;
      const NodeId end =
          nodes_.add_collective(node, group_id, details_.collectives.at(part.collective), factor, waited_for(waits));
      if (!part.beside || part.compute.value == 0) front.computed.assign(group.lanes.size(), no_node);
      front.collective = end;
    }
    if (parts.back().collective >= 0) compute({});
    mark(false);
  }

  void join(NodeId from, NodeId to) {
    const bool beside = beside_[to] == from;
    for (int lane = 0; lane < result_.lanes; ++lane) {
      const NodeId gate = gates_[index(to, lane)];
      nodes_.edge(beside ? gates_[index(from, lane)] : last(from, lane), gate != no_node ? gate : first(to, lane));
    }
  }

  const ScheduleGraph& folded_;
  const PipelineCosts& costs_;
  const Layout& layout_;
  const UnfoldingDetails& details_;
  UnfoldedGraph result_;
  UnfoldedNodes nodes_{result_.graph};
  std::vector<int> lane_of_rank_;
  std::vector<LaneGroup> tensor_groups_;
  std::vector<LaneGroup> data_groups_;
  std::vector<bool> has_gate_;  // by folded node
  std::vector<NodeId> beside_;  // of a reduction: the folded action that hides it
  std::vector<NodeId> gates_;   // as `first`
};

}  // namespace

UnfoldedGraph unfold(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                     const UnfoldingDetails& details) {
  return Unfolder(folded, costs, layout, details).build();
}

Evaluation in_lane(const UnfoldedGraph& unfolded, const Evaluation& evaluation, int lane) {
  Evaluation result;
  const auto lanes = static_cast<std::size_t>(unfolded.lanes);
  for (auto at = static_cast<std::size_t>(lane); at < unfolded.first.size(); at += lanes) {
    result.start.push_back(evaluation.start[unfolded.first[at]]);
    result.end.push_back(evaluation.end[unfolded.last[at]]);
    result.makespan = std::max(result.makespan, result.end.back());
  }
  return result;
}

}  // namespace plumb
