// Which split makes the shortest step: what no formula tells, the longest path does.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/plan_on.hpp"

namespace plumb {

// The costs of a plan whose split is settled.
using CostsOf = std::function<PipelineCosts(const Plan&)>;

// The step of one split if it is below `below` and every rank fits, else none; by how much the fullest rank exceeds its
// memory, where `below` does not tell already; and how many nodes its path has (counted in either case).
struct WeighedSplit {
  std::optional<Seconds> step = {};
  Bytes over = {};
  std::size_t nodes = 0;
};
using WeighSplit = std::function<WeighedSplit(const Split&, Seconds below)>;

// Weighs by the longest path and the device's memory.
[[nodiscard]] WeighSplit weigh_by_path(const Plan& plan, const CostsOf& costs_of);

// Where improving ends: when the paths had so many nodes together and one split fits.
inline constexpr std::size_t most_weighed_nodes = std::size_t{1} << 20;        // of several stages per rank: a second
inline constexpr std::size_t thoroughly_weighed_nodes = std::size_t{1} << 18;  // of one
inline constexpr std::size_t quickly_weighed_nodes = std::size_t{1} << 15;

struct SplitSearch {
  std::size_t most_nodes = most_weighed_nodes;
  std::size_t most_nodes_shortfall = most_weighed_nodes;  // as long as nothing fits
  // Of published planners, say; asked for at the end, since they take long. No step is longer than with these.
  std::function<std::vector<Split>()> others = {};
};

// How far a plan's dynamic split is searched.
[[nodiscard]] SplitSearch split_search(const Plan& plan, bool thorough);

// Weighs what the exact searches find within both problems and the uniform split; where there are few enough splits all
// that the lesser problem does not rule out: then the shortest step is proven. Else the best is improved: one block
// goes from any stage to any other, those between shift by one, as long as that makes the step shorter and fits; where
// nothing fits yet, the same as long as it brings the fullest rank nearer to fitting. nullopt: none fits, proven where
// the lesser problem has no split or all were weighed. Throws InputError if that takes too long to prove. The problems
// have a memory limit.
[[nodiscard]] std::optional<Split> fastest_split(const SplitProblems& problems, const WeighSplit& weigh,
                                                 const SplitSearch& search);

// Of these splits, improved in the same way.
[[nodiscard]] std::optional<Split> fastest_split(const std::vector<Split>& starts, const WeighSplit& weigh);

// The dynamic split of data degrees by stage: the uniform one and those with the least slowest stage, of all and of the
// ones whose stages fit in memory; of few splits all. Then as above; where nothing fits, the one with the least slowest
// stage. `blocks`: by pipeline rank. `plan` lacks split and costs.
[[nodiscard]] Split split_by_stage_data(const Plan& plan, const RankBlocks& blocks, const CostsOf& costs_of);

}  // namespace plumb
