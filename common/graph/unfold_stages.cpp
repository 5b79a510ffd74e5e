#include "common/graph/unfold_stages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/unfolded_nodes.hpp"
#include "common/layout/message_shares.hpp"

namespace plumb {
namespace {

class StageUnfolder {
 public:
  StageUnfolder(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                const std::vector<CollectivePlan>& reductions)
      : folded_(folded), costs_(costs), layout_(layout), reductions_(reductions) {
    const std::size_t stages = costs.stages.size();
    if (folded.ranks != layout.pipeline || reductions.size() != stages || costs.boundaries.size() + 1 != stages) {
      throw InputError("graph", "the folded graph and its costs are not of this layout's pipeline of " +
                                    std::to_string(layout.pipeline) + " ranks with data degrees by stage");
    }
    result_.graph.ranks = ranks(layout);
    result_.copies.resize(folded.nodes.size());
    of_rank_.resize(folded.nodes.size());
  }

  UnfoldedStages build() {
    for (const NodeId id : folded_.topological_order) add_node(id);
    for (NodeId id = 0; id < folded_.nodes.size(); ++id) {
      for (const auto next : successors(folded_, id)) join(id, static_cast<NodeId>(next));
    }
    nodes_.finish();
    return std::move(result_);
  }

 private:
  // A rank takes part in a copy.
  struct Part {
    int rank = 0;
    std::size_t copy = 0;
  };

  void add_copy(NodeId id, const NodeCopy& copy, const std::vector<int>& ranks) {
    for (const int rank : ranks) of_rank_[id].push_back({rank, result_.copies[id].size()});
    result_.copies[id].push_back(copy);
  }

  void add_node(NodeId id) {
    const Node& node = folded_.nodes[id];
    if (node.kind == NodeKind::transfer) {
      add_message(id);
    } else if (is_folded(node)) {
      add_reduction(id);
    } else if (occupies_rank(node)) {
      for (int lane = 0; lane < stage_width(layout_, node.rank); ++lane) {
        Node own = node;
        own.rank = first_rank(layout_, node.rank) + lane;
        const NodeId only = nodes_.emit(own);
        add_copy(id, {own.rank, only, only}, {own.rank});
      }
    } else {
      throw InputError("graph", "stages with different data degrees exchange nothing but messages and gradients");
    }
    std::ranges::stable_sort(of_rank_[id], {}, &Part::rank);
  }

  void add_message(NodeId id) {
    const Node& node = folded_.nodes[id];
    const auto behind = static_cast<std::size_t>(std::min(node.action.stage, producer_stage(node.action)));
    const BoundaryCost& boundary = costs_.boundaries[behind];
    // Messages of one batch that take turns each have their own start.
    const double alone = boundary_time(boundary).value;
    const double turns = alone > 0 ? std::max(1.0, std::round(node.duration.value / alone)) : 1;
    const std::int32_t flow = flow_index(result_.graph, {.latency = boundary.way.latency * turns});
    const double whole = static_cast<double>(node.bytes.value) * data_degree(layout_, node.rank);
    for (const MessageShare& share : message_shares(layout_, node.peer, node.rank)) {
      Node part = node;
      part.rank = share.to;
      part.peer = share.from;
      part.bytes = {std::llround(whole * share.fraction)};
      part.flow = flow;
      const NodeId only = nodes_.emit(part);
      add_copy(id, {share.to, only, only}, {share.from, share.to});
    }
  }

  void add_reduction(NodeId id) {
    const Node& node = folded_.nodes[id];
    const CollectivePlan& plan = reductions_[static_cast<std::size_t>(node.action.stage)];
    const Seconds whole = time_of(plan);
    const double factor = whole.value > 0 ? node.duration / whole : 1;
    const auto data = static_cast<std::size_t>(MeshAxis::data);
    for (int lane = 0; lane < stage_width(layout_, node.rank); ++lane) {
      const int rank = first_rank(layout_, node.rank) + lane;
      if (coordinates(layout_, rank).at(data) != 0) continue;
      std::vector<int> members = group(layout_, rank, MeshAxis::data);
      std::ranges::sort(members);
      if (plan.count == 0) {  // nobody to reduce with
        Node alone = node;
        alone.rank = rank;
        const NodeId only = nodes_.emit(alone);
        add_copy(id, {rank, only, only}, members);
        continue;
      }
      result_.graph.groups.push_back(members);
      const auto group_id = static_cast<std::int32_t>(result_.graph.groups.size() - 1);
      const auto first = static_cast<NodeId>(result_.graph.nodes.size());
      add_copy(id, {rank, first, nodes_.add_collective(node, group_id, plan, factor)}, members);
    }
  }

  // What a rank takes part in of one node, before what it does of the next one. One of the two is an action, of one
  // rank, so that no edge comes twice.
  void join(NodeId from, NodeId to) {
    auto before = of_rank_[from].begin();
    for (auto at = of_rank_[to].begin(); at != of_rank_[to].end(); ++at) {
      while (before != of_rank_[from].end() && before->rank < at->rank) ++before;
      for (auto same = before; same != of_rank_[from].end() && same->rank == at->rank; ++same) {
        nodes_.edge(result_.copies[from][same->copy].last, result_.copies[to][at->copy].first);
      }
    }
  }

  const ScheduleGraph& folded_;
  const PipelineCosts& costs_;
  const Layout& layout_;
  const std::vector<CollectivePlan>& reductions_;
  UnfoldedStages result_;
  UnfoldedNodes nodes_{result_.graph};
  std::vector<std::vector<Part>> of_rank_;  // by folded node, ascending by rank
};

}  // namespace

UnfoldedStages unfold_stages(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                             const std::vector<CollectivePlan>& reductions) {
  return StageUnfolder(folded, costs, layout, reductions).build();
}

Evaluation folded_back(const UnfoldedStages& unfolded, const Evaluation& evaluation, const std::vector<int>& ranks) {
  Evaluation result;
  for (const std::vector<NodeCopy>& copies : unfolded.copies) {
    const auto counts = [&](const NodeCopy& copy) { return std::ranges::find(ranks, copy.rank) != ranks.end(); };
    const bool any = std::ranges::any_of(copies, counts);
    Seconds start{std::numeric_limits<double>::infinity()};
    Seconds end;
    for (const NodeCopy& copy : copies) {
      if (any && !counts(copy)) continue;
      start = std::min(start, evaluation.start[copy.first]);
      end = std::max(end, evaluation.end[copy.last]);
    }
    result.start.push_back(start);
    result.end.push_back(end);
    result.makespan = std::max(result.makespan, end);
  }
  return result;
}

}  // namespace plumb
