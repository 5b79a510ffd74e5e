// One chosen way to train: complete, so that the executor needs no other file but the data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/scenario/boundary.hpp"
#include "common/scenario/scenario.hpp"
#include "common/schedule/schedule.hpp"
#include "common/schedule/slices.hpp"
#include "common/split/split.hpp"

namespace plumb {

inline constexpr int plan_version = 6;

struct Plan {
  std::string name = {};
  Model model = {};
  Cluster cluster = {};
  Training training = {};
  Layout layout = {};
  Software software = {};         // that the costs are predicted for
  std::string split_method = {};  // "uniform", "dynamic", …
  Split split = {};
  Schedule schedule = {};          // compute only, recomputes included
  PipelineCosts costs = {};        // predicted; `--emulate` waits them
  BoundaryManifest boundary = {};  // of slices of different lengths the longest's: the others' are as their tokens
  bool operator==(const Plan&) const = default;
};

// What each of the schedule's slices is of a sequence, and what its boundary is.
[[nodiscard]] std::vector<Slice> slices_of(const Plan& plan);
[[nodiscard]] BoundaryManifest plan_boundary(const Plan& plan);

// Whether the schedule's own actions redo the forward: full recompute, stage by stage.
[[nodiscard]] bool recomputes_by_action(const Plan& plan);

// The hidden states of one microbatch as each rank of a tensor group sends them to the next stage: its part where the
// tokens are divided already or the software scatters them, else all of them. `sent_of`: of hidden states of so many
// bytes.
[[nodiscard]] Bytes sent_boundary_bytes(const Plan& plan);
[[nodiscard]] Bytes sent_of(const Plan& plan, Bytes boundary);

// Ranks of one pipeline that stand on the same machine. Where the ranks of one stage fill several machines or just one,
// it is 1; with data degrees by stage too.
[[nodiscard]] int pipeline_ranks_per_machine(const Layout& layout, const Machine& machine);

// Of a machine's cores those that a pipeline rank's ranks there compute on; 1 where each rank has its own device, or
// stages have different data degrees.
[[nodiscard]] int cores_per_pipeline_rank(const Layout& layout, const Machine& machine);

// True if embedding and head are one trained table, whose gradients are added.
[[nodiscard]] bool trains_tied_table(const Plan& plan);

// True if two ranks hold the tied embedding's table and exchange its gradients.
[[nodiscard]] bool tied_over_ranks(const Plan& plan);

// When UNSHARD gathers the weights of its stages; none also where each action gathers them for itself.
[[nodiscard]] WeightGathering weight_gathering(const Layout& layout);

// The plan's schedule with transfers, tied reductions and optimizer steps: what both halves run.
[[nodiscard]] Schedule lowered_schedule(const Plan& plan);

// JSON, deterministic. `read_plan` throws InputError for truncated JSON, a missing or foreign version (both are said),
// and anything inconsistent: counts, ranks, schedules that do not validate.
[[nodiscard]] std::string to_json(const Plan& plan);
[[nodiscard]] Plan read_plan(const std::filesystem::path& path);

// Over schedule, split and shapes: two runs of one plan have the same. And over the predicted costs.
[[nodiscard]] std::string plan_digest(const Plan& plan);
[[nodiscard]] std::string costs_digest(const PipelineCosts& costs);

}  // namespace plumb
