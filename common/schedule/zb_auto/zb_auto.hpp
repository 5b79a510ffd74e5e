// ZB auto: places F, I and W of every stage by their own times, within a limit of memory per rank.
#pragma once

#include <vector>

#include "common/base/stop.hpp"
#include "common/base/units.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {

// Of one microbatch on one stage.
struct StageLoad {
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
  Bytes kept;             // from F until I
  Bytes kept_for_weight;  // from I until W
  bool operator==(const StageLoad&) const = default;
};

// Any placement, ranks with any numbers of stages.
struct AutoProblem {
  int ranks = 1;
  int microbatches = 1;
  std::vector<int> rank_of_stage;
  std::vector<StageLoad> stages;
  std::vector<Seconds> hop;    // from stage b to b+1 and back; inside a rank 0, whatever stands here; empty: all 0
  std::vector<Bytes> limit;    // per rank, of what its stages keep; empty: none
  const Stop* stop = nullptr;  // tells the search to end: it throws Stopped
  bool operator==(const AutoProblem&) const = default;
};

// A schedule of F, I and W whose last W ends early; of those that end equally early, one whose longest rank, from its
// first F to its last W, is short, and then one whose fullest rank comes less near its limit. On every stage F, I and W
// each go in the order of the microbatches. Counted in the order of a rank's list, F adds `kept`, I turns it into
// `kept_for_weight`, W frees that: never more than the limit. Not worse than any fixed schedule of the registry for
// that placement that fits the same limits. Throws InputError (where = "schedule zb-auto") if sizes do not agree, a
// number is negative, or even one microbatch does not fit.
[[nodiscard]] Schedule schedule_zb_auto(const AutoProblem& problem);

// Where so many chunks per rank may lie, from ranks and chunks: in waves if their number is even, and in a loop; for
// one chunk or one rank there is no difference.
using StagePlacement = std::vector<int> (*)(int ranks, int chunks);
[[nodiscard]] std::vector<StagePlacement> auto_placements(int ranks, int chunks);

// On each of these placements instead of the problem's own; the schedule that ends first, of those that end equally
// early the one whose fullest rank keeps less, then the first.
[[nodiscard]] Schedule schedule_zb_auto(AutoProblem problem, const std::vector<StagePlacement>& placements, int chunks);

// For stages that are all alike, with the memory of 1F1B. Throws as empty_schedule does.
[[nodiscard]] Schedule even_zb_auto(const ScheduleShape& shape, const std::vector<StagePlacement>& placements,
                                    const Stop* stop = nullptr);

// No schedule that keeps the microbatches' order and the limits can end its last W earlier. Each rank is taken alone
// and may interrupt its work (Jackson's preemptive rule for one machine, which is exact); nothing starts before, and
// the step does not end sooner after it than, the longest chain of work that must lie between: through the stages, the
// microbatches of a stage one after the other, and F of microbatch k+n after I (or W) of k where n+1 would not fit.
// Beside it a rank's limit: m microbatches that each keep what they keep for as long as their chains are need at least
// area / limit.
[[nodiscard]] Seconds zb_auto_bound(const AutoProblem& problem);

}  // namespace plumb
