#include "common/graph/unfolded_parts.hpp"

#include <algorithm>
#include <iterator>

namespace plumb {
namespace {

void append(std::vector<NodeId>& nodes, NodeId node) {
  if (node != no_node) nodes.push_back(node);
}

const std::vector<UnfoldedGroup>& groups_of(const StageRanks& ranks, Among among) {
  switch (among) {
    case Among::inside:
      return ranks.inside;
    case Among::across:
      return ranks.across;
    default:
      return ranks.shards;
  }
}

}  // namespace

Seconds time_of(const ActionBlocks& blocks, const CollectiveTable& table) {
  const std::vector<BlockParts>& all = blocks.blocks;
  Seconds time;
  if (!blocks.beside) {
    for (const BlockParts& block : all) {
      time += time_of(block.gathering) + time_of(block.parts, table) + time_of(block.reducing);
    }
    return time;
  }
  time = time_of(all.front().gathering) + time_of(all.back().reducing);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Seconds next = i + 1 < all.size() ? time_of(all[i + 1].gathering) : Seconds{};
    const Seconds before = i > 0 ? time_of(all[i - 1].reducing) : Seconds{};
    time += std::max(time_of(all[i].parts, table), next + before);
  }
  return time;
}

const std::vector<ActionPart>& parts_of(const StageParts& stage, ActionKind kind) {
  switch (kind) {
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

// A node for each rank of the group.
UnfoldedParts::Front UnfoldedParts::add_computing(const Node& folded, const UnfoldedGroup& group, const Front& front,
                                                  Seconds time) {
  Front next;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    const NodeId id = nodes_.emit(
        {.kind = folded.kind, .action = folded.action, .rank = group.ranks[i], .bytes = {}, .duration = time});
    if (!front.computed.empty()) nodes_.edge(front.computed[i], id);
    nodes_.edge(front.collective, id);
    next.computed.push_back(id);
  }
  return next;
}

UnfoldedParts::Front UnfoldedParts::add_part(const Node& folded, const UnfoldedGroup& group, const Front& front,
                                             const ActionPart& part, double factor) {
  Front next = front;
  if (part.compute.value > 0) next = add_computing(folded, group, front, part.compute * factor);
  if (part.collective < 0) return next;
  const Front& waits = part.beside ? front : next;
  std::vector<NodeId> before;
  for (const NodeId node : waits.computed) append(before, node);
  append(before, waits.collective);
  const NodeId end = nodes_.add_collective(folded, group.id, collectives_.at(part.collective), factor, before);
  if (!part.beside || part.compute.value == 0) next.computed.assign(group.ranks.size(), no_node);
  next.collective = end;
  return next;
}

std::vector<NodeCopy> UnfoldedParts::add_parts(const Node& folded, const UnfoldedGroup& group,
                                               std::span<const ActionPart> parts, double factor) {
  Front front;
  std::vector<NodeId> begin;
  if (parts.front().beside || parts.front().compute.value == 0) {
    front = add_computing(folded, group, front, {});
    begin = front.computed;
  }
  for (const ActionPart& part : parts) {
    const bool first = begin.empty();
    const NodeId at = nodes_.next();
    front = add_part(folded, group, front, part, factor);
    for (std::size_t i = 0; first && i < group.ranks.size(); ++i) begin.push_back(at + static_cast<NodeId>(i));
  }
  if (parts.back().collective >= 0) front = add_computing(folded, group, front, {});
  std::vector<NodeCopy> copies;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    copies.push_back({group.ranks[i], begin[i], front.computed[i]});
  }
  return copies;
}

void UnfoldedParts::join(const Node& folded, OfRank& waits) {
  for (auto& [rank, before] : waits) {
    const NodeId id =
        nodes_.emit({.kind = folded.kind, .action = folded.action, .rank = rank, .bytes = {}, .duration = {}});
    for (const NodeId node : before) nodes_.edge(node, id);
    before = {id};
  }
}

void UnfoldedParts::move(const Node& folded, const StageRanks& ranks, const CollectivePlan& plan, double factor,
                         OfRank& waits) {
  for (int i = 0; i < plan.count; ++i) {
    const CollectivePhase& phase = plan.phases.at(static_cast<std::size_t>(i));
    const CollectivePlan alone{.algorithm = plan.algorithm, .phases = {phase}, .count = 1};
    for (const UnfoldedGroup& group : groups_of(ranks, phase.among)) {
      std::vector<NodeId> before;
      for (const int rank : group.ranks) std::ranges::copy(waits.at(rank), std::back_inserter(before));
      const NodeId end = nodes_.add_collective(folded, group.id, alone, factor, before);
      for (const int rank : group.ranks) waits.at(rank) = {end};
    }
  }
}

std::vector<NodeCopy> UnfoldedParts::add_moves(const Node& folded, const StageRanks& ranks,
                                               std::span<const CollectivePlan> plans, double factor) {
  OfRank waits;
  for (const UnfoldedGroup& group : ranks.shards) {
    for (const int rank : group.ranks) waits[rank];
  }
  std::vector<NodeCopy> copies;
  for (const CollectivePlan& plan : plans) {
    CollectivePlan begin{.phases = {plan.phases.front()}, .count = 1};
    CollectivePlan rest = plan;
    std::rotate(rest.phases.begin(), rest.phases.begin() + 1, rest.phases.end());
    --rest.count;
    move(folded, ranks, begin, factor, waits);
    if (copies.empty()) {
      for (const auto& [rank, nodes] : waits) copies.push_back({.rank = rank, .first = nodes.front()});
    }
    move(folded, ranks, rest, factor, waits);
  }
  for (NodeCopy& copy : copies) copy.last = waits.at(copy.rank).front();
  return copies;
}

UnfoldedParts::OfRank UnfoldedParts::compute(const Node& folded, const StageRanks& ranks,
                                             std::span<const ActionPart> parts, double factor, const OfRank& begin) {
  OfRank done;
  for (const UnfoldedGroup& group : ranks.tensor) {
    Front front;
    for (const int rank : group.ranks) front.computed.push_back(begin.at(rank).front());
    for (const ActionPart& part : parts) front = add_part(folded, group, front, part, factor);
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      append(done[group.ranks[i]], front.computed[i]);
      append(done[group.ranks[i]], front.collective);
    }
  }
  return done;
}

std::vector<NodeCopy> UnfoldedParts::add_blocks(const Node& folded, const StageRanks& ranks, const ActionBlocks& blocks,
                                                double factor) {
  const std::vector<BlockParts>& all = blocks.blocks;
  OfRank waits;
  for (const UnfoldedGroup& group : ranks.tensor) {
    for (const int rank : group.ranks) waits[rank];
  }
  join(folded, waits);
  const OfRank first = waits;
  const auto add = [&](const OfRank& more) {
    for (const auto& [rank, nodes] : more) std::ranges::copy(nodes, std::back_inserter(waits[rank]));
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || !blocks.beside) move(folded, ranks, all[i].gathering, factor, waits);
    join(folded, waits);
    const OfRank begin = waits;
    waits = compute(folded, ranks, all[i].parts, factor, begin);
    if (!blocks.beside) {
      move(folded, ranks, all[i].reducing, factor, waits);
      continue;
    }
    OfRank moved = begin;
    if (i + 1 < all.size()) move(folded, ranks, all[i + 1].gathering, factor, moved);
    if (i > 0) move(folded, ranks, all[i - 1].reducing, factor, moved);
    add(moved);
  }
  if (blocks.beside) move(folded, ranks, all.back().reducing, factor, waits);
  join(folded, waits);
  std::vector<NodeCopy> copies;
  for (const auto& [rank, nodes] : waits) copies.push_back({rank, first.at(rank).front(), nodes.front()});
  return copies;
}

}  // namespace plumb
