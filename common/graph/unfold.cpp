#include "common/graph/unfold.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/cost/gradient_buckets.hpp"
#include "common/graph/exchange_steps.hpp"
#include "common/graph/unfolded_nodes.hpp"
#include "common/graph/unfolded_parts.hpp"
#include "common/layout/lane.hpp"
#include "common/layout/message_shares.hpp"
#include "common/placement/mesh.hpp"

namespace plumb {
namespace {

// Parts that add up to a node's duration so nearly are not scaled: they differ by rounding.
constexpr double equal = 1e-9;

double factor_of(Seconds wanted, Seconds found) {
  if (found.value <= 0) return 1;
  const double factor = wanted / found;
  return std::abs(factor - 1) < equal ? 1 : factor;
}

class Unfolder {
 public:
  Unfolder(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
           const UnfoldingDetails& details)
      : folded_(folded), costs_(costs), layout_(layout), details_(details) {
    const bool apart = has_stage_data(layout) && costs.boundaries.size() + 1 != costs.stages.size();
    if (folded.ranks != layout.pipeline || apart ||
        details.stages.size() != costs.stages.size() * static_cast<std::size_t>(details.slices)) {
      throw InputError("graph", "the folded graph and its costs are not of this layout's pipeline of " +
                                    std::to_string(layout.pipeline) + " ranks");
    }
    result_.graph.ranks = ranks(layout);
    ranks_of_.resize(static_cast<std::size_t>(layout.pipeline));
    for (int rank = 0; rank < ranks(layout); ++rank) {
      ranks_of_[static_cast<std::size_t>(coordinates(layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline)))]
          .push_back(rank);
    }
    for (const std::vector<int>& own : ranks_of_) {
      groups_.push_back({.tensor = groups_of(own, [&](int rank) { return group(layout, rank, MeshAxis::tensor); }),
                         .shards = groups_of(own, [&](int rank) { return shard_group(layout, rank); })});
      for (Group& tensor : groups_.back().tensor) add_axes(tensor);
      if (inside_shards(layout.data) > 1) {
        groups_.back().inside = groups_of(own, [&](int rank) { return inside_group(layout, rank); });
        groups_.back().across = groups_of(own, [&](int rank) { return across_group(layout, rank); });
      }
      if (layout.data.sharding != Sharding::hsdp) continue;
      groups_.back().copies = groups_of(own, [&](int rank) { return replicate_group(layout, rank); });
    }
    result_.copies.resize(folded_.nodes.size());
    gates_.resize(folded_.nodes.size());
    find_hidden_reductions();
  }

  UnfoldedGraph build(const UnfoldedSize& expected) {
    nodes_.reserve(expected.nodes, expected.edges);
    for (const NodeId id : folded_.topological_order) {
      if (has_gate_[id]) add_gates(id);
      add_node(id);
      std::ranges::stable_sort(result_.copies[id], {}, &NodeCopy::rank);
    }
    for (NodeId id = 0; id < folded_.nodes.size(); ++id) {
      for (const auto next : successors(folded_, id)) join(id, static_cast<NodeId>(next));
    }
    for (NodeId id = 0; id < folded_.nodes.size(); ++id) {
      if (gates_[id].empty()) continue;
      for (const NodeCopy& copy : result_.copies[id]) nodes_.edge(gate_of(id, copy.rank), copy.first);
    }
    nodes_.finish();
    return std::move(result_);
  }

  // Nodes that are alike become alike: one of each sort is counted.
  UnfoldedSize size() {
    std::map<Sort, UnfoldedSize> known;
    UnfoldedSize all{.folded = static_cast<std::int64_t>(folded_.nodes.size())};
    std::vector<std::int64_t> copies(folded_.nodes.size());
    for (const NodeId id : folded_.topological_order) {
      const auto [found, is_new] = known.try_emplace(sort_of(folded_.nodes[id]));
      if (is_new) found->second = size_of(id);
      copies[id] = found->second.copies;
      const std::int64_t gates = has_gate_[id] ? copies[id] : 0;
      all.nodes += found->second.nodes + gates;
      all.edges += found->second.edges + gates;
      all.copies += copies[id];
    }
    // A message is a node for each pair of its ranks, and stands behind or before one of these.
    const auto pairs = [&](NodeId id) { return folded_.nodes[id].kind == NodeKind::transfer ? copies[id] / 2 : 0; };
    for (NodeId id = 0; id < folded_.nodes.size(); ++id) {
      for (const auto next : successors(folded_, id)) {
        const std::int64_t messages = std::max(pairs(id), pairs(static_cast<NodeId>(next)));
        all.edges += messages > 0 ? messages : std::min(copies[id], copies[next]);
      }
    }
    return all;
  }

 private:
  // Stage and slice, from whom and to whom, and whether it takes time: all by which details differ in number.
  using Sort = std::tuple<NodeKind, ActionKind, std::int32_t, int, std::int32_t, std::int32_t, bool>;
  [[nodiscard]] Sort sort_of(const Node& node) const {
    const int slice = std::max(0, node.action.microbatch) % details_.slices;
    return {node.kind, node.action.kind, node.action.stage, slice, node.rank, node.peer, node.duration.value > 0};
  }

  UnfoldedSize size_of(NodeId id) {
    nodes_.count_alone();
    add_node(id);
    const UnfoldedSize size{.nodes = nodes_.next(),
                            .edges = nodes_.edges(),
                            .copies = static_cast<std::int64_t>(result_.copies[id].size())};
    result_.copies[id] = {};
    return size;
  }

  using Group = UnfoldedGroup;

  // Of the ranks of one stage.
  template <class MembersOf>
  std::vector<Group> groups_of(const std::vector<int>& own, const MembersOf& members_of) {
    std::vector<Group> groups;
    for (const int rank : own) {
      Group found{.ranks = members_of(rank), .id = static_cast<std::int32_t>(result_.graph.groups.size())};
      if (found.ranks.front() != rank) continue;
      std::ranges::sort(found.ranks);
      result_.graph.groups.push_back(found.ranks);
      groups.push_back(std::move(found));
    }
    return groups;
  }

  // Of a grid's tensor group, whose ranks stand in the order of the mesh.
  void add_axes(Group& tensor) {
    if (!is_grid(layout_.tensor)) return;
    Layout grid;
    grid.tensor = layout_.tensor;
    const Mesh mesh = mesh_of(grid);
    for (const Axes over : details_.collectives.axes()) {
      std::vector<Group>& groups = tensor.along[over.bits];
      if (!groups.empty()) continue;
      for (int place = 0; place < layout_.tensor.degree; ++place) {
        const std::vector<int> places = plumb::group(mesh, place, over);
        if (places.front() != place) continue;
        Group along{.ranks = {}, .id = static_cast<std::int32_t>(result_.graph.groups.size())};
        for (const int at : places) along.ranks.push_back(tensor.ranks[static_cast<std::size_t>(at)]);
        result_.graph.groups.push_back(along.ranks);
        groups.push_back(std::move(along));
      }
    }
  }

  [[nodiscard]] const std::vector<int>& ranks_of(int stage) const { return ranks_of_[static_cast<std::size_t>(stage)]; }

  void add_copy(NodeId id, int rank, NodeId first, NodeId last) { result_.copies[id].push_back({rank, first, last}); }

  // A reduction whose folded node has only what the action before does not hide starts together with that action.
  void find_hidden_reductions() {
    has_gate_.assign(folded_.nodes.size(), false);
    beside_.assign(folded_.nodes.size(), no_node);
    for (NodeId id = 0; id < folded_.nodes.size(); ++id) {
      const Node& action = folded_.nodes[id];
      if (action.kind != NodeKind::compute || action.duration.value <= 0) continue;
      for (const auto next : successors(folded_, id)) {
        const Node& node = folded_.nodes[next];
        if (!is_folded(node) || node.action.kind != ActionKind::reduce_gradient) continue;
        const StageReduction& reduction = of_stage(node.action).reduction;
        // What else it waits for, a tied table's sum, the folded one has before all that the action does not hide.
        const bool alone = folded_.predecessor_count[next] == 1 && action.action.stage == node.action.stage;
        if (!reduction.copies.empty() && !alone) continue;
        const Seconds whole = time_of(reduction.shards) + time_of(reduction.copies);
        const double tolerance = equal * whole.value;
        const bool hidden = (whole - node.duration).value > tolerance;
        const Seconds shown = exposed(reduction, action.duration);
        if (!hidden || std::abs((shown - node.duration).value) > tolerance) continue;
        has_gate_[id] = reduction.reduced.empty();  // else it starts within the action
        if (!has_gate_[id]) {
          if (!of_stage(action.action).blocks.contains(action.action.kind)) continue;
          reduced_[id] = {};
        }
        beside_[next] = id;
      }
    }
  }

  // What the action and the reduction beside it start after, by rank of the stage.
  void add_gates(NodeId id) {
    const Node& node = folded_.nodes[id];
    for (const int rank : ranks_of(node.rank)) {
      gates_[id].push_back(
          nodes_.emit({.kind = NodeKind::compute, .action = node.action, .rank = rank, .bytes = {}, .duration = {}}));
    }
  }
  [[nodiscard]] NodeId gate_of(NodeId id, int rank) const {
    if (gates_[id].empty()) return no_node;
    const std::vector<int>& own = ranks_of(folded_.nodes[id].rank);
    return gates_[id][static_cast<std::size_t>(std::ranges::lower_bound(own, rank) - own.begin())];
  }

  void add_node(NodeId id) {
    const Node& node = folded_.nodes[id];
    if (node.action.kind == ActionKind::clip_gradients) return add_clip(id);
    if (joins_parts(node.action.kind)) return add_joined_parts(id);
    if (is_folded(node)) return add_collective(id);
    if (occupies_rank(node)) return add_action(id);
    if (!has_stage_data(layout_)) return add_pairs(id);
    if (node.kind == NodeKind::transfer) return add_shares(id);
    throw InputError("graph", "stages with different data degrees exchange nothing but messages and gradients");
  }

  void add_action(NodeId id) {
    const Node& node = folded_.nodes[id];
    const auto at = static_cast<std::size_t>(node.rank);
    const StageParts& stage = of_stage(node.action);
    auto blocks = stage.blocks.find(node.action.kind);
    const bool again = node.action.kind == ActionKind::recompute;
    if (again && blocks == stage.blocks.end()) blocks = stage.blocks.find(ActionKind::forward);
    if (blocks != stage.blocks.end() && node.duration.value > 0) {
      const double factor = factor_of(node.duration, time_of(blocks->second, details_.collectives));
      UnfoldedBlocks detail = parts_.add_blocks(node, groups_[at], blocks->second, factor);
      result_.copies[id] = std::move(detail.copies);
      if (const auto beside = reduced_.find(id); beside != reduced_.end()) beside->second = std::move(detail.reduced);
      return;
    }
    const std::vector<ActionPart>& parts = parts_of(stage, node.action.kind);
    if (layout_.tensor.degree > 1 && !parts.empty() && node.duration.value > 0) {
      const double factor = factor_of(node.duration, time_of(parts, details_.collectives));
      for (const Group& group : groups_[at].tensor) {
        for (const NodeCopy& copy : parts_.add_parts(node, group, parts, factor)) result_.copies[id].push_back(copy);
      }
      return;
    }
    for (const int rank : ranks_of(node.rank)) {
      Node own = node;
      own.rank = rank;
      const NodeId only = nodes_.emit(own);
      add_copy(id, rank, only, only);
    }
  }

  // Between two ranks of each lane. The latency is the folded one's, also where stages and machines do not divide each
  // other.
  void add_pairs(NodeId id) {
    const Node& node = folded_.nodes[id];
    Flow flow{.latency = transfer_between(costs_, node.peer, node.rank).latency};
    if (node.kind == NodeKind::transfer) flow.latency += gathering_time(costs_, node.action.microbatch);
    if (node.flow >= 0) flow = folded_.flows[static_cast<std::size_t>(node.flow)];
    for (std::size_t lane = 0; lane < ranks_of(node.rank).size(); ++lane) {
      Node own = node;
      own.rank = ranks_of(node.rank)[lane];
      own.peer = ranks_of(node.peer)[lane];
      own.flow = flow_index(result_.graph, flow);
      add_between(id, own);
    }
  }

  void add_between(NodeId id, const Node& node) {
    const NodeId only = nodes_.emit(node);
    add_copy(id, node.rank, only, only);
    add_copy(id, node.peer, only, only);
  }

  void add_shares(NodeId id) {
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
      add_between(id, part);
    }
  }

  // What is done once a step is the same in all slices.
  [[nodiscard]] const StageParts& of_stage(const Action& action) const {
    const int slice = std::max(0, action.microbatch) % details_.slices;
    return details_.stages[static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(details_.slices) +
                           static_cast<std::size_t>(slice)];
  }

  void add_collective(NodeId id) {
    const Node& node = folded_.nodes[id];
    const StageParts& stage = of_stage(node.action);
    const std::vector<CollectivePlan>& plans =
        node.action.kind == ActionKind::unshard ? stage.gathering : stage.reduction.shards;
    const bool replicates = node.action.kind != ActionKind::unshard && !stage.reduction.copies.empty();
    const Seconds all = time_of(plans) + (replicates ? time_of(stage.reduction.copies) : Seconds{});
    const double factor = beside_[id] != no_node ? 1 : factor_of(node.duration, all);
    const StageRanks& groups = groups_[static_cast<std::size_t>(node.rank)];
    if (replicates) {
      result_.copies[id] = parts_.add_with_copies(node, groups, stage.reduction, factor, beside(id));
      return;
    }
    if (!plans.empty() && plans.front().phases.front().among != Among::all) {
      result_.copies[id] = parts_.add_moves(node, groups, plans, factor);
      return;
    }
    for (const Group& group : groups.shards) {
      const NodeId first = nodes_.next();
      if (!plans.empty()) {
        const NodeId last = nodes_.add_collectives(node, group.id, plans, factor);
        for (const int rank : group.ranks) add_copy(id, rank, first, last);
        continue;
      }
      for (const int rank : group.ranks) {  // nobody to reduce with, or nothing
        Node alone = node;
        alone.rank = rank;
        const NodeId only = nodes_.emit(alone);
        add_copy(id, rank, only, only);
      }
    }
  }

  // Of all ranks, whose norms go into one; of each lane's ranks, which join the parts of their vocabulary.
  void add_clip(NodeId id) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks(layout_); ++rank) all.push_back(rank);
    add_joined(id, all, {.latency = folded_.nodes[id].duration});
  }
  void add_joined_parts(NodeId id) {
    const Flow& flow = folded_.flows[static_cast<std::size_t>(folded_.nodes[id].flow)];
    for (const Lane& lane : lanes_of(layout_)) add_joined(id, lane.ranks, flow);
  }
  void add_joined(NodeId id, const std::vector<int>& ranks, const Flow& flow) {
    const NodeId only = nodes_.emit_joined(folded_.nodes[id], ranks, flow);
    for (const int rank : ranks) add_copy(id, rank, only, only);
  }

  [[nodiscard]] BesideReduction beside(NodeId id) const {
    BesideReduction found;
    const NodeId action = beside_[id];
    if (action == no_node) return found;
    for (const NodeCopy& copy : result_.copies[action]) found.computed[copy.rank] = copy.last;
    if (const auto reduced = reduced_.find(action); reduced != reduced_.end()) found.reduced = reduced->second;
    return found;
  }

  // On each rank what it takes part in of one node, before what it does of the next one; each edge once, also of two
  // nodes that share two ranks.
  void join(NodeId from, NodeId to) {
    const bool beside = beside_[to] == from;
    std::vector<std::pair<NodeId, NodeId>> edges;
    auto before = result_.copies[from].begin();
    for (const NodeCopy& copy : result_.copies[to]) {
      while (before != result_.copies[from].end() && before->rank < copy.rank) ++before;
      for (auto same = before; same != result_.copies[from].end() && same->rank == copy.rank; ++same) {
        const NodeId gate = gate_of(to, copy.rank);
        edges.emplace_back(beside ? gate_of(from, copy.rank) : same->last, gate != no_node ? gate : copy.first);
      }
    }
    std::ranges::sort(edges);
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    for (const auto& [u, v] : edges) nodes_.edge(u, v);
  }

  const ScheduleGraph& folded_;
  const PipelineCosts& costs_;
  const Layout& layout_;
  const UnfoldingDetails& details_;
  UnfoldedGraph result_;
  UnfoldedNodes nodes_{result_.graph};
  UnfoldedParts parts_{nodes_, details_.collectives};
  std::vector<std::vector<int>> ranks_of_;             // by pipeline rank, ascending
  std::vector<StageRanks> groups_;                     // `shards` of the data axis, of HSDP of each copy
  std::map<NodeId, std::vector<NodeOfRank>> reduced_;  // as UnfoldedBlocks, of actions that hide sums over copies
  std::vector<bool> has_gate_;                         // by folded node
  std::vector<NodeId> beside_;                         // of a reduction: the folded action that hides it
  std::vector<std::vector<NodeId>> gates_;             // by folded node, of each rank of its stage
};

}  // namespace

UnfoldedGraph unfold(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                     const UnfoldingDetails& details, const UnfoldedSize& expected) {
  return Unfolder(folded, costs, layout, details).build(expected);
}

UnfoldedSize unfolded_size(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout,
                           const UnfoldingDetails& details) {
  return Unfolder(folded, costs, layout, details).size();
}

}  // namespace plumb
