// The actions of an unfolded graph in detail: what a group's ranks compute, and the collectives between and beside it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/graph/exchange_steps.hpp"
#include "common/graph/unfold.hpp"
#include "common/graph/unfolded_nodes.hpp"
#include "common/program/program_parts.hpp"

namespace plumb {

struct UnfoldedGroup {
  std::vector<int> ranks;  // ascending
  std::int32_t id = 0;     // in the graph's groups
  // Of a grid, by the bits of its axes: who stands along these, each group apart from the others.
  std::map<std::uint16_t, std::vector<UnfoldedGroup>> along = {};
};

// Of the ranks of one stage: those that share a block out, and those that share one copy of its weights, with their
// groups inside and across where a phase is of these.
struct StageRanks {
  std::vector<UnfoldedGroup> tensor = {};
  std::vector<UnfoldedGroup> shards = {};
  std::vector<UnfoldedGroup> inside = {};
  std::vector<UnfoldedGroup> across = {};
  std::vector<UnfoldedGroup> copies = {};  // those that have the same part; none without HSDP
};

using NodeOfRank = std::map<int, NodeId>;

// An action of blocks, and of each block whose gradients it reduces the end of that.
struct UnfoldedBlocks {
  std::vector<NodeCopy> copies = {};
  std::vector<NodeOfRank> reduced = {};
};

// What a reduction has beside it: what its action computes last, and as in UnfoldedBlocks. Empty: nothing.
struct BesideReduction {
  NodeOfRank computed = {};
  std::vector<NodeOfRank> reduced = {};
};

// What such an action does between its begin and end; R is as F.
[[nodiscard]] const std::vector<ActionPart>& parts_of(const StageParts& stage, ActionKind kind);

class UnfoldedParts {
 public:
  UnfoldedParts(UnfoldedNodes& nodes, const CollectiveTable& collectives) : nodes_(nodes), collectives_(collectives) {}

  // Of one tensor group, each part `factor` times as long. Each rank's detail begins and ends with a node of its own.
  [[nodiscard]] std::vector<NodeCopy> add_parts(const Node& folded, const UnfoldedGroup& group,
                                                std::span<const ActionPart> parts, double factor);

  // Of all ranks of a stage, block by block, as common/cost/moves_in_sequence.hpp says.
  [[nodiscard]] UnfoldedBlocks add_blocks(const Node& folded, const StageRanks& ranks, const ActionBlocks& blocks,
                                          double factor);

  // The sums in each of HSDP's copies, and those over the copies, as StageReduction says; with nothing beside them one
  // after the other.
  [[nodiscard]] std::vector<NodeCopy> add_with_copies(const Node& folded, const StageRanks& ranks,
                                                      const StageReduction& reduction, double factor,
                                                      const BesideReduction& beside);

  // Collectives of all ranks of a stage, one after the other; each of a rank's groups goes on by itself.
  [[nodiscard]] std::vector<NodeCopy> add_moves(const Node& folded, const StageRanks& ranks,
                                                std::span<const CollectivePlan> plans, double factor);

 private:
  // What the next part of a group waits for: of each rank what it computed last, and the collective it was in.
  struct Front {
    std::vector<NodeId> computed = {};
    std::vector<NodeId> collective = {};
  };
  using OfRank = std::map<int, std::vector<NodeId>>;  // what a rank waits for

  [[nodiscard]] Front add_computing(const Node& folded, const UnfoldedGroup& group, const Front& front, Seconds time);
  [[nodiscard]] Front add_part(const Node& folded, const UnfoldedGroup& group, const Front& front,
                               const ActionPart& part, double factor);
  // A node on each rank behind what it waits for, in whose place it stands then.
  void join(const Node& folded, OfRank& waits);
  // In each group of those of a phase, behind what its ranks wait for; in its place then. Nothing of an empty plan.
  void move(const Node& folded, const StageRanks& ranks, const CollectivePlan& plan, double factor, OfRank& waits);
  // Of each rank by itself, behind what it waits for; in its place then. Nothing that takes no time.
  void copy_to_host(const Node& folded, Seconds time, double factor, OfRank& waits);
  // A block's computing behind one node of each rank.
  [[nodiscard]] OfRank compute(const Node& folded, const StageRanks& ranks, std::span<const ActionPart> parts,
                               double factor, const OfRank& begin);

  // Of one group, behind what its ranks wait for.
  [[nodiscard]] NodeId add_sum(const Node& folded, const UnfoldedGroup& group, const CollectivePlan& plan,
                               double factor, std::span<const NodeOfRank* const> waits);

  UnfoldedNodes& nodes_;
  const CollectiveTable& collectives_;
};

}  // namespace plumb
