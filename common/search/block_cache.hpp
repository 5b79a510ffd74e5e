// The blocks of a scenario's families and what runs of them cost as stages: computed once for families that share them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/planner/plan_on.hpp"

namespace plumb {

// One family's blocks, of neighbours that are equal one, and the sums over runs of them that were asked for.
class BlockRuns {
 public:
  explicit BlockRuns(const std::vector<ComputeCost>& blocks);

  // All, equal ones each.
  void write_to(std::vector<ComputeCost>& blocks) const;
  // in_sequence of the blocks [first, last).
  [[nodiscard]] const ComputeCost& run(int first, int last);
  // Runs with the same number cost the same.
  [[nodiscard]] std::size_t number(int first, int last) const;

 private:
  std::vector<ComputeCost> distinct_;
  std::vector<std::size_t> place_;  // by block, in these
  std::vector<int> same_from_;      // by block: the first of the equal ones up to it
  std::map<std::size_t, ComputeCost> runs_;
};

class BlockCache {
 public:
  // Of the scenario, whose layout and training are a family's and whose exchange is the schedule's; `plan` as for
  // settled_blocks.
  [[nodiscard]] BlockRuns& runs(const Scenario& scenario, const Plan& plan, bool backward_is_split);
  // All blocks of runs that came from here: until the next call. A family's take as much memory as a hundred of runs.
  [[nodiscard]] const std::vector<ComputeCost>& blocks(const BlockRuns& runs);

  // Of a vocabulary that the layout divides over the pipeline; `plan` has its boundary.
  [[nodiscard]] const PartCosts& parts(const Scenario& scenario, const Plan& plan);

  // Of the family's schedule, as slice_tokens of common/planner says; `plan` has none yet.
  [[nodiscard]] std::vector<std::int64_t> slice_tokens(const Scenario& scenario, const Plan& plan,
                                                       const PlanChoice& choice);

 private:
  // What actions gather and reduce: whether they do and how far ahead, HSDP's copies, what there is of ZeRO++, and
  // where the ranks of each group stand.
  using Place = std::array<double, 6>;
  using DataKey = std::tuple<Sharding, int, bool, bool, int, int, bool, int, int, std::vector<Place>>;
  // Kind, degree and depth, what I and W gather again, and where the groups along a grid's axes stand.
  using TensorKey = std::tuple<TensorKind, int, int, bool, std::vector<Place>>;
  using Key = std::tuple<DataKey, TensorKey, int, bool, Place, int, std::int64_t, RecomputeMode, int, PipelineExchange,
                         bool, std::vector<Slice>, int, bool, double, Offload, bool>;
  [[nodiscard]] static Place place_of(const GroupPlacement& group);
  [[nodiscard]] static DataKey data_key_of(const Scenario& scenario);
  [[nodiscard]] static Key key_of(const Scenario& scenario, const Plan& plan, bool backward_is_split);

  std::map<Key, BlockRuns> cache_;
  std::map<std::tuple<Key, int, int>, PartCosts> parts_;  // also by pipeline ranks and barriers
  std::vector<ComputeCost> blocks_;
  const BlockRuns* blocks_of_ = nullptr;
  // Also by what the longest path is over: ranks and microbatches, and the schedule.
  std::map<std::tuple<Key, int, std::int64_t, std::string>, std::vector<std::int64_t>> slices_of_equal_work_;
};

}  // namespace plumb
