// What a published planner would make of the layout and schedule that a search has chosen.
#pragma once

#include "common/planner/planner.hpp"
#include "common/split/baselines/baselines.hpp"

namespace plumb {

// `best` with the split of the baseline; not built, with the reason, where the baseline has none. Where the scenario
// leaves data degrees by stage open, a baseline that chooses replicas (Baseline::replicas) chooses cuts and degrees of
// its own, for the tensor layout and the recompute mode of `best`, in 1F1B: see replica_baseline.
[[nodiscard]] Candidate weigh_baseline(const Scenario& scenario, const Candidate& best, const Baseline& baseline,
                                       const Evaluator& evaluator);

// What such a planner proposes: of its best cuts and degrees for each number of stages the best that can be built with
// one of the scenario's microbatches, and with the fastest of them; not built, with the reason, where none can.
// PipeDream plans for the microbatch of `best` on one worker, any number of replicas, and bandwidth alone (arXiv
// 1806.03377, section 3.2); a microbatch that it sends to one replica of a stage is divided among all of them here.
// DAPPLE and Alpa plan for every microbatch and widest stage; Alpa's submeshes are parts of a machine by powers of two
// and whole machines (arXiv 2201.12023, section 5.2).
[[nodiscard]] Candidate replica_baseline(const Scenario& scenario, const Candidate& best, const Baseline& baseline,
                                         const Evaluator& evaluator);

}  // namespace plumb
