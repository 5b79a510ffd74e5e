#include "common/graph/unfolded_parts.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "common/cost/block_passage.hpp"
#include "common/schedule/move_order.hpp"

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

std::span<const UnfoldedGroup> groups_over(const UnfoldedGroup& group, Axes over) {
  const auto along = group.along.find(over.bits);
  return along == group.along.end() ? std::span(&group, 1) : std::span<const UnfoldedGroup>(along->second);
}

// Of the members, in the group.
std::vector<std::size_t> places_of(const UnfoldedGroup& members, const UnfoldedGroup& group) {
  std::vector<std::size_t> places;
  for (const int rank : members.ranks) {
    const auto place = std::ranges::lower_bound(group.ranks, rank) - group.ranks.begin();
    places.push_back(static_cast<std::size_t>(place));
  }
  return places;
}

// To the host and back, while this block computes: one of the two, in any action.
Seconds copied_beside(const std::vector<BlockParts>& all, std::size_t i) {
  return (i + 1 < all.size() ? all[i + 1].copied_before : Seconds{}) + (i > 0 ? all[i - 1].copied_behind : Seconds{});
}

// Whether these are activations that come up, as weights do.
bool come_up_beside(const std::vector<BlockParts>& all, std::size_t i) {
  return i + 1 < all.size() && all[i + 1].copied_before.value > 0;
}

}  // namespace

Seconds time_of(const ActionBlocks& blocks, const CollectiveTable& table) {
  const std::vector<BlockParts>& all = blocks.blocks;
  const bool beside = blocks.prefetch > 0;
  std::vector<PassedBlock> passed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    PassedBlock& block = passed.emplace_back(PassedBlock{.computing = time_of(all[i].parts, table)});
    const Seconds gathering = all[i].weights_up + time_of(all[i].gathering);
    const Seconds reducing = time_of(all[i].reducing);
    block.copying = copied_beside(all, i);
    if (come_up_beside(all, i)) block.copying += all[beside ? i + 1 : i].weights_up;
    if (beside) {
      block.gathering = gathering;
      block.reducing = reducing;
    } else {
      block.computing += gathering + reducing;
    }
  }
  Seconds before = all.front().copied_before;
  if (beside) before = std::max(passed.front().gathering, all.front().weights_up + before);
  const BlockPassage way = passage(passed, std::max(blocks.prefetch, 1));
  Seconds time = before + way.behind + all.back().copied_behind;
  for (std::size_t i = 0; i < all.size(); ++i) time += passed[i].computing + way.waits[i];
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
    if (!front.collective.empty()) nodes_.edge(front.collective[i], id);
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
  std::vector<NodeId> ends(group.ranks.size(), no_node);
  for (const UnfoldedGroup& members : groups_over(group, collectives_.over(part.collective))) {
    const std::vector<std::size_t> places = places_of(members, group);
    std::vector<NodeId> before;
    std::set<NodeId> collectives;  // of several ranks one
    for (const std::size_t i : places) {
      if (!waits.computed.empty()) append(before, waits.computed[i]);
      if (!waits.collective.empty() && waits.collective[i] != no_node) collectives.insert(waits.collective[i]);
    }
    before.insert(before.end(), collectives.begin(), collectives.end());
    const NodeId end = nodes_.add_collective(folded, members.id, collectives_.at(part.collective), factor, before);
    for (const std::size_t i : places) ends[i] = end;
  }
  if (!part.beside || part.compute.value == 0) next.computed.assign(group.ranks.size(), no_node);
  next.collective = std::move(ends);
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

void UnfoldedParts::copy_to_host(const Node& folded, Seconds time, double factor, OfRank& waits) {
  if (time.value <= 0) return;
  for (auto& [rank, before] : waits) {
    const NodeId id = nodes_.emit(
        {.kind = NodeKind::host_copy, .action = folded.action, .rank = rank, .bytes = {}, .duration = time * factor});
    for (const NodeId node : before) nodes_.edge(node, id);
    before = {id};
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
      if (!front.collective.empty()) append(done[group.ranks[i]], front.collective[i]);
    }
  }
  return done;
}

// One walk over the blocks, in which each move waits for those before it: NOLINTNEXTLINE(readability-function-size)
UnfoldedBlocks UnfoldedParts::add_blocks(const Node& folded, const StageRanks& ranks, const ActionBlocks& blocks,
                                         double factor) {
  const std::vector<BlockParts>& all = blocks.blocks;
  UnfoldedBlocks result;
  OfRank waits;
  for (const UnfoldedGroup& group : ranks.tensor) {
    for (const int rank : group.ranks) waits[rank];
  }
  join(folded, waits);
  const OfRank first = waits;
  const auto add_to = [](OfRank& to, const OfRank& more) {
    for (const auto& [rank, nodes] : more) std::ranges::copy(nodes, std::back_inserter(to[rank]));
  };
  const auto add = [&](const OfRank& more) { add_to(waits, more); };
  const auto reduce = [&](const BlockParts& block, OfRank& moved) {
    move(folded, ranks, block.reducing, factor, moved);
    if (block.reducing.count == 0) return;
    NodeOfRank& ends = result.reduced.emplace_back();
    for (const auto& [rank, nodes] : moved) ends[rank] = nodes.front();
  };
  const bool beside = blocks.prefetch > 0;
  OfRank come = first;
  if (beside) copy_to_host(folded, all.front().weights_up, factor, come);
  if (beside) waits = come;
  copy_to_host(folded, all.front().copied_before, factor, come);
  if (!beside) waits = come;
  const MoveOrder order(std::max(blocks.prefetch, 1));
  std::vector<OfRank> ended;  // of each move
  const auto bring_up = [&](std::size_t block, OfRank& moved) {
    if (block < all.size()) copy_to_host(folded, all[block].weights_up, factor, moved);
  };
  // Those that are issued when a block begins; `moved`: behind those before.
  const auto issue = [&](std::size_t block, OfRank& moved) {
    while (ended.size() < order.issued(block)) {
      const MoveOrder::Move next = order.at(ended.size());
      if (next.gathers && blocks.prefetch > 1) bring_up(next.block, moved);
      if (next.gathers && next.block < all.size()) move(folded, ranks, all[next.block].gathering, factor, moved);
      if (!next.gathers && next.block < all.size()) reduce(all[next.block], moved);
      ended.push_back(moved);
    }
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool up = come_up_beside(all, i);  // behind weights, over one link
    OfRank copied = waits;
    if (!beside) copy_to_host(folded, all[i].weights_up, factor, waits);
    if (up) copied = waits;
    if (i == 0 || !beside) move(folded, ranks, all[i].gathering, factor, waits);
    if (i == 0 && beside && all[i].copied_before.value > 0) add(come);
    join(folded, waits);
    const OfRank begin = waits;
    OfRank moved = begin;
    if (blocks.prefetch == 1) bring_up(i + 1, moved);
    if (beside) copied = up ? moved : begin;
    copy_to_host(folded, copied_beside(all, i), factor, copied);
    const bool copies = copied_beside(all, i).value > 0;
    waits = compute(folded, ranks, all[i].parts, factor, begin);
    if (!beside) {
      reduce(all[i], waits);
      if (copies) add(copied);
      continue;
    }
    if (copies) add(copied);
    // One ahead, all of them have ended.
    if (blocks.prefetch > 1 && i > 0) add_to(moved, ended.back());
    issue(i, moved);
    add(ended[order.ended_behind(i) - 1]);
  }
  if (blocks.prefetch > 1) add_to(waits, ended.back());
  if (beside) issue(all.size(), waits);
  copy_to_host(folded, all.back().copied_behind, factor, waits);
  join(folded, waits);
  for (const auto& [rank, nodes] : waits) result.copies.push_back({rank, first.at(rank).front(), nodes.front()});
  return result;
}

NodeId UnfoldedParts::add_sum(const Node& folded, const UnfoldedGroup& group, const CollectivePlan& plan, double factor,
                              std::span<const NodeOfRank* const> waits) {
  std::vector<NodeId> before;
  for (const NodeOfRank* nodes : waits) {
    for (const int rank : group.ranks) {
      if (const auto found = nodes->find(rank); found != nodes->end()) before.push_back(found->second);
    }
  }
  std::ranges::sort(before);
  before.erase(std::unique(before.begin(), before.end()), before.end());
  return nodes_.add_collective(folded, group.id, plan, factor, before);
}

std::vector<NodeCopy> UnfoldedParts::add_with_copies(const Node& folded, const StageRanks& ranks,
                                                     const StageReduction& reduction, double factor,
                                                     const BesideReduction& beside) {
  std::map<int, NodeCopy> detail;
  const auto add = [&](const std::vector<UnfoldedGroup>& groups, const CollectivePlan& plan, const auto&... waits) {
    NodeOfRank ends;
    for (const UnfoldedGroup& group : groups) {
      const NodeId first = nodes_.next();
      const std::array<const NodeOfRank*, sizeof...(waits)> all{&waits...};
      const NodeId last = add_sum(folded, group, plan, factor, all);
      for (const int rank : group.ranks) {
        ends[rank] = last;
        detail.try_emplace(rank, NodeCopy{.rank = rank, .first = first}).first->second.last = last;
      }
    }
    return ends;
  };
  std::vector<NodeOfRank> summed = beside.reduced;
  const NodeOfRank nothing;
  // What the action does not reduce itself is complete when it ends; else the buckets know when they may start.
  NodeOfRank within = beside.reduced.empty() ? nothing : beside.computed;
  for (const CollectivePlan& plan : reduction.shards) summed.push_back(within = add(ranks.shards, plan, within));
  NodeOfRank over;
  for (std::size_t i = 0; i < reduction.copies.size(); ++i) {
    const std::size_t left = beside.computed.empty() ? 1 : reduction.copies.size() - i;
    const NodeOfRank& own = left <= summed.size() ? summed[summed.size() - left] : nothing;
    over = add(ranks.copies, reduction.copies[i], over, own, left == 1 ? beside.computed : nothing);
  }
  std::vector<NodeCopy> copies;
  for (const auto& [rank, copy] : detail) copies.push_back(copy);
  return copies;
}

}  // namespace plumb
