// One chosen way to train: complete, so that the executor needs no other file but the data.
#pragma once

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/plan/boundary.hpp"
#include "common/plan/scenario.hpp"
#include "common/schedule/schedule.hpp"
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
  Schedule schedule = {};    // compute only, recomputes included
  PipelineCosts costs = {};  // predicted; `--emulate` waits them
  BoundaryManifest boundary = {};
  bool operator==(const Plan&) const = default;
};

// The name of a split method in scenarios, plans and tables.
[[nodiscard]] std::string_view name_of(SplitMethod method);

// Settles one combination of a scenario's candidates. Throws InputError when it cannot be built (say why).
struct PlanChoice {
  std::int64_t microbatch = 1;
  ScheduleChoice schedule = {};
  SplitChoice split = {};
  std::optional<Layout> layout = {};  // this and the next: none is the scenario's own
  std::optional<Recompute> recompute = {};
  bool operator==(const PlanChoice&) const = default;
};
// Of a scenario that leaves nothing open.
[[nodiscard]] PlanChoice only_choice(const Scenario& scenario);
// What a schedule was asked for; of one from a file itself.
[[nodiscard]] ScheduleChoice choice_of(const Schedule& schedule);
// A schedule that is searched for the stages' times, which takes seconds.
[[nodiscard]] bool is_made_for_times(const ScheduleChoice& schedule);

// How much is tried for one plan.
struct PlanEffort {
  bool thorough = true;        // false: as a search weighs its candidates, in a small part of the time; never better
  const Stop* stop = nullptr;  // tells long searches to end: they throw Stopped
  // A schedule for a split's times is not searched where every such schedule takes more than that: SlowerThanAsked.
  std::optional<Seconds> at_most = {};
};
struct SlowerThanAsked : std::exception {
  explicit SlowerThanAsked(Seconds bound) : least(bound) {}
  [[nodiscard]] const char* what() const noexcept override { return "the plan is slower than asked for"; }
  Seconds least;  // that the plan takes: more than what was asked for
};

// The dynamic split keeps every rank within its memory where such a split is found; otherwise it is the one without a
// limit. By the longest path it is no slower than the uniform split, and thoroughly not than the cuts of the published
// planners either, as far as these fit; a schedule that is made for times is made for the split with the least slowest
// stage, of several stages per rank for the shortest path of the same schedule for equal stages.
[[nodiscard]] Plan make_plan(const Scenario& scenario, const PlanChoice& choice, const PlanEffort& effort = {});

// What the dynamic split weighs for this plan's schedule: block times with recompute, and the moments at which a rank
// may hold most, with all that it may need beside.
[[nodiscard]] SplitProblem split_problem(const Plan& plan, const std::vector<ComputeCost>& blocks);

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

// True if embedding and head are one trained table, whose gradients are added.
[[nodiscard]] bool trains_tied_table(const Plan& plan);

// True if two ranks hold the tied embedding's table and exchange its gradients.
[[nodiscard]] bool tied_over_ranks(const Plan& plan);

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
