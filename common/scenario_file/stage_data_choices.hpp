// Which data degrees by stage are worth weighing: what a scenario that leaves them open has for candidates.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/scenario/scenario.hpp"
#include "common/split/replicas.hpp"

namespace plumb {

// Few vectors of degrees are all candidates; of more those that the planner of replicated stages finds best, once with
// messages that share NICs and once as if they did not.
inline constexpr std::size_t most_stage_data_vectors = 32;  // so that up to six replicas are searched exhaustively
inline constexpr std::size_t most_stage_data_layouts = 12;  // for each tensor degree and each of the two

// Layouts with data degrees by stage, for each tensor layout of the scenario's, as far as some of its microbatches
// divide among the replicas of every stage. `scenario.stage_data_pipelines` says how long pipelines may be. None where
// stages cannot have them: with a profile, or a trained table that two stages share.
[[nodiscard]] std::vector<Layout> stage_data_layouts(const Scenario& scenario);

// Why there are none with a vocabulary over the pipeline, where the scenario has such layouts and this is all that
// speaks against them.
[[nodiscard]] std::optional<std::string> why_no_divided_stage_data(const Scenario& scenario);

// Why there are none, and what would give some.
[[nodiscard]] std::string why_no_stage_data(const Scenario& scenario);

// The chain that planners of replicated stages weigh, for `replicas` of the tensor layout of `base` in all,
// microbatches of so many sequences on each replica of the widest stage, which has `widest` of them, and any degree up
// to that which divides such a microbatch. Times of the scenario's first recompute mode, at each degree's own share;
// messages as if every two stages stood on two machines, unless one machine has all ranks; reductions as of a stage
// that begins with a machine, or nothing where the backward hides them. What is found is weighed by the longest path
// like any other layout. Refers to the scenario.
[[nodiscard]] ReplicaProblem replica_problem(const Scenario& scenario, const Layout& base, int replicas,
                                             std::int64_t microbatch, int widest);

// With a step of so many microbatches of `microbatch` on each of `widest` replicas; 0: they do not divide the batch.
[[nodiscard]] std::int64_t microbatches_of(const Scenario& scenario, std::int64_t microbatch, int widest);

// Ranks of the cluster for each rank of a tensor group (and context and expert): replicas of all stages together. The
// data degree of `base` is 1.
[[nodiscard]] int replicas_in_all(const Scenario& scenario, const Layout& base);

// `base` with these degrees, ranks in the order of the stages.
[[nodiscard]] Layout layout_with(const Layout& base, const std::vector<int>& degrees);

}  // namespace plumb
