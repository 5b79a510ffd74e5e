// Which split of ranks with several stages makes the shortest step: what no formula tells, the longest path does.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {

// The costs of a plan whose split is settled.
using CostsOf = std::function<PipelineCosts(const Plan&)>;

inline constexpr std::size_t most_weighed_nodes = std::size_t{1} << 20;  // below a second

// Of the fast splits for `problem` and for the whole memory of the device (what the problem holds in reserve may not be
// needed) those whose ranks do fit, and of these the one with the shortest longest path; then improved: one block goes
// from any stage to any other, those between shift by one, as long as that makes the step shorter and fits. So no step
// is longer than that of any fast split that fits, the uniform one among them; nothing more is proven. Ends when the
// paths had most_weighed_nodes nodes together and one split fits. nullopt: none fits. Throws InputError if that takes
// too long to prove. `plan` lacks split and costs; `problem` has a memory limit.
[[nodiscard]] std::optional<Split> fastest_split(const Plan& plan, SplitProblem problem, const CostsOf& costs_of);

// The same with another way to weigh: the step of one split if it is below `below` and every rank fits, else none, and
// how many nodes its path has (counted in either case).
struct WeighedSplit {
  std::optional<Seconds> step = {};
  std::size_t nodes = 0;
};
using WeighSplit = std::function<WeighedSplit(const Split&, Seconds below)>;
[[nodiscard]] std::optional<Split> fastest_split(SplitProblem problem, Bytes device_memory, const WeighSplit& weigh);

// Of these splits, improved in the same way.
[[nodiscard]] std::optional<Split> fastest_split(const std::vector<Split>& starts, const WeighSplit& weigh);

// Weighs by the longest path and the device's memory.
[[nodiscard]] WeighSplit weigh_by_path(const Plan& plan, const CostsOf& costs_of);

// The dynamic split of data degrees by stage: the uniform one and those with the least slowest stage, of all and of the
// ones whose stages fit in memory; of few splits all. Then as above; where nothing fits, the one with the least slowest
// stage. `blocks`: by pipeline rank. `plan` lacks split and costs.
[[nodiscard]] Split split_by_stage_data(const Plan& plan, const RankBlocks& blocks, const CostsOf& costs_of);

}  // namespace plumb
