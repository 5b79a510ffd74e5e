// A plan whose placement is settled, and the parts that it is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/schedule/registry.hpp"
#include "common/schedule/zb_auto.hpp"

namespace plumb {

// `placement`: of a schedule that is made for times; none: the schedule's own. `room`: what each rank may keep beside
// what is left without the worst workspace and messages at once; empty: nothing.
[[nodiscard]] Plan plan_on(const Scenario& asked, const PlanChoice& choice, Placement placement,
                           const std::vector<Bytes>& room = {});

// What the choice's schedule is asked for. Throws InputError when the batch does not divide, the sequence does not into
// its slices, a given schedule is for another shape, or it would be too large.
[[nodiscard]] ScheduleShape schedule_shape(const Scenario& scenario, const PlanChoice& choice);

// What a schedule holds at its fullest, as the dynamic split weighs it: of two replicas the ranks that hold the same
// stages are one. Throws InputError where they do not.
struct HeldMoments {
  std::vector<int> rank_of_stage;
  std::vector<std::vector<Moment>> moments;
  std::int64_t inputs = 0;  // of microbatches whose F is redone: the most that a rank holds
};
[[nodiscard]] HeldMoments held_moments(const Plan& plan);
// What the ranks need besides the sums that a split problem knows; `inputs` as above.
[[nodiscard]] Bytes reserve(const Plan& plan, const std::vector<ComputeCost>& blocks, std::int64_t inputs);
[[nodiscard]] SplitProblem split_problem(const Plan& plan, const std::vector<ComputeCost>& blocks,
                                         const HeldMoments& held);

// The split that was chosen; `dynamic` finds the dynamic one. Of the plan's schedule the number of stages counts.
[[nodiscard]] Split choose_split(const Plan& plan, const SplitChoice& choice, const std::vector<ComputeCost>& blocks,
                                 const std::function<Split()>& dynamic);

// The dynamic split; `several`: ranks hold several stages, and `fastest` is fastest_split.
using FastestOf = std::function<std::optional<Split>(const SplitProblem&)>;
[[nodiscard]] Split dynamic_of(SplitProblem problem, bool several, const FastestOf& fastest);

}  // namespace plumb
