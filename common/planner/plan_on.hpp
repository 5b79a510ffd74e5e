// A plan whose placement is settled, and the parts that it is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/zb_auto/zb_auto.hpp"

namespace plumb {

// `placement`: of a schedule that is made for times; none: the schedule's own. `room`: what each rank may keep beside
// what is left without the worst workspace and messages at once; empty: nothing.
[[nodiscard]] Plan plan_on(const Scenario& asked, const PlanChoice& choice, const PlanEffort& effort,
                           StagePlacement placement, const std::vector<Bytes>& room = {});

// What the choice's schedule is asked for. Throws InputError when the batch does not divide, the sequence does not into
// its slices, a given schedule is for another shape, or it would be too large.
[[nodiscard]] ScheduleShape schedule_shape(const Scenario& scenario, const PlanChoice& choice);

// What a schedule holds at its fullest, as the dynamic split weighs it: of two replicas the ranks that hold the same
// stages are one. Throws InputError where they do not.
struct HeldMoments {
  std::vector<int> rank_of_stage;
  std::vector<std::vector<Moment>> moments;
  // The same without what only waits for W, where I and W are apart (there a microbatch keeps less than before I, or
  // more: whole output gradients with sequence parallelism); empty: as above.
  std::vector<std::vector<Moment>> moments_until_input = {};
  bool has_full_backward = true;          // an action that is I and W in one
  std::vector<std::int64_t> inputs = {};  // by rank, of microbatches whose F is redone: the most that it keeps
};
[[nodiscard]] HeldMoments held_moments(const Plan& plan);

// What the dynamic split is searched within. `sure`: what fits it fits, unless messages pile up; two of them on their
// way in and two out, inputs of recomputed stages and workspaces are all counted at once. `least`: what does not fit it
// cannot fit; of a rank with several stages without workspaces, for it is not known which of them works at its fullest
// moment. Of slices of different lengths all count as the largest there, as the smallest here. `stop` tells their
// searches to end.
struct SplitProblems {
  SplitProblem sure;
  SplitProblem least;
};
[[nodiscard]] SplitProblems split_problems(const Plan& plan, const std::vector<ComputeCost>& blocks, HeldMoments held,
                                           const Stop* stop = nullptr);

// The split that was chosen; `dynamic` finds the dynamic one. Of the plan's schedule the number of stages counts.
[[nodiscard]] Split choose_split(const Plan& plan, const SplitChoice& choice, const std::vector<ComputeCost>& blocks,
                                 const std::function<Split()>& dynamic);

// Where no split is known to fit: the dynamic one without a limit of memory.
[[nodiscard]] Split split_without_limit(SplitProblem problem);

}  // namespace plumb
