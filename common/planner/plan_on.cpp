#include "common/planner/plan_on.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/digest.hpp"
#include "common/base/error.hpp"
#include "common/cost/costs_json.hpp"
#include "common/graph/memory.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/message_shares.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/model/files/model_json.hpp"
#include "common/plan/cut_problem.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/parts_json.hpp"
#include "common/plan/plan.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/plan_features.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/planner/fastest_split.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/slice_tokens.hpp"
#include "common/scenario/used_features.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/schedule_json.hpp"
#include "common/schedule/zb_auto/zb_auto.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {
namespace {

// Number of microbatches of a data-parallel rank in a step.
std::int64_t microbatches_of_rank(const Scenario& scenario, const PlanChoice& choice) {
  const std::int64_t step = choice.microbatch * batch_shards(scenario.layout);
  if (step < 1 || scenario.training.global_batch % step != 0) {
    throw InputError("training", undivided_batch(scenario.layout, choice.microbatch, scenario.training.global_batch));
  }
  if (const auto uneven = uneven_shares(scenario.layout, choice.microbatch)) {
    const std::int64_t least = least_microbatch(scenario.layout);
    throw InputError("layout", *uneven, least > 0 ? "microbatch: " + std::to_string(least) : "other degrees");
  }
  require_grid_microbatch(scenario.layout.tensor, choice.microbatch);
  return scenario.training.global_batch / step;
}

}  // namespace

ScheduleShape schedule_shape(const Scenario& scenario, const PlanChoice& choice) {
  const std::int64_t microbatches = microbatches_of_rank(scenario, choice);
  require_slices_possible(scenario, choice.schedule);
  if (const std::optional<Schedule>& given = choice.schedule.given) {
    if (given->ranks == scenario.layout.pipeline && whole_microbatches(*given) == microbatches) {
      return {.ranks = given->ranks, .microbatches = static_cast<int>(microbatches), .chunks = given->chunks};
    }
    throw InputError("schedule", given->name + " is for " + std::to_string(given->ranks) + " ranks and " +
                                     std::to_string(whole_microbatches(*given)) + " microbatches, but there are " +
                                     std::to_string(scenario.layout.pipeline) + " and " + std::to_string(microbatches));
  }
  const std::int64_t stage_count =
      static_cast<std::int64_t>(scenario.layout.pipeline) * choice.schedule.chunks * choice.schedule.slices;
  if (microbatches > largest_schedule / stage_count) {
    throw InputError("training",
                     std::to_string(microbatches) + " microbatches on " + std::to_string(stage_count) +
                         " stages are more than a schedule of " + std::to_string(largest_schedule) + " pairs holds",
                     "a larger microbatch or a smaller global batch");
  }
  return {.ranks = scenario.layout.pipeline,
          .microbatches = static_cast<int>(microbatches),
          .chunks = choice.schedule.chunks,
          .slices = choice.schedule.slices,
          .group = choice.schedule.group,
          .update_every = choice.schedule.update_every,
          .overlap = choice.schedule.overlap,
          .vocabulary_barriers = scenario.layout.vocabulary_barriers};
}

namespace {

// `placement`: of a schedule that is made for times; none: the schedule's own. Only a dynamic split looks at what it
// does before it is made.
Schedule compute_schedule(const Scenario& scenario, const PlanChoice& choice, StagePlacement placement,
                          const Stop* stop) {
  const ScheduleShape shape = schedule_shape(scenario, choice);
  if (choice.schedule.given) return *choice.schedule.given;
  // Before a schedule of so many stages is made, or searched. What is written down may have stages without layers.
  const bool written = choice.split.method == SplitMethod::counts || choice.split.method == SplitMethod::megatron;
  if (!written) {
    require_stages(static_cast<int>(scenario.model.layers.size()), stages_of(choice.schedule, shape.ranks));
  }
  if (placement == nullptr) return generate_schedule(choice.schedule.name, shape);
  if (choice.split.method == SplitMethod::dynamic) return even_zb_auto(shape, {placement}, stop);
  Schedule schedule = empty_schedule(choice.schedule.name, shape);
  schedule.rank_of_stage = placement(shape.ranks, shape.chunks);
  return schedule;
}

}  // namespace

namespace {

Bytes worst_workspace(const ComputeCost& stage) {
  return std::max(
      {stage.forward_workspace_bytes, stage.input_gradient_workspace_bytes, stage.weight_gradient_workspace_bytes});
}

// What a schedule that is made for the stages' own times is made for. R counts as part of I, before which it stands.
// Of a rank's memory two messages on their way in and two out are left out, and the worst workspace of its stages.
AutoProblem auto_problem(const Plan& plan, int in_flight, const std::vector<Bytes>& room) {
  const bool recompute = recomputes_by_action(plan);
  AutoProblem problem{
      .ranks = plan.schedule.ranks,
      .microbatches = plan.schedule.microbatches,
      .rank_of_stage = plan.schedule.rank_of_stage,
      .stages = {},
      .hop = {},
      .limit = std::vector<Bytes>(static_cast<std::size_t>(plan.schedule.ranks),
                                  plan.cluster.machine.device.memory.value - plan.costs.boundary_bytes * 4)};
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    const ComputeCost& cost = plan.costs.stages[stage];
    problem.stages.push_back({.forward = cost.forward,
                              .input_gradient = cost.input_gradient +
                                                (recompute ? recompute_time(cost.forward, cost.data_moves) : Seconds{}),
                              .weight_gradient = cost.weight_gradient,
                              .kept = recompute ? plan.costs.boundary_bytes : cost.kept_bytes,
                              .kept_for_weight = cost.kept_for_weight_bytes});
    const int rank = plan.schedule.rank_of_stage[stage];
    Bytes& limit = problem.limit[static_cast<std::size_t>(rank)];
    limit -= states_held(cost);
    if (recompute) limit -= cost.kept_bytes;  // of the one that is redone
    if (stage + 1 == plan.costs.stages.size()) break;
    const int next = plan.schedule.rank_of_stage[stage + 1];
    problem.hop.push_back(transfer_time(transfer_between(plan.costs, rank, next), plan.costs.boundary_bytes));
  }
  for (std::size_t rank = 0; rank < problem.limit.size(); ++rank) {
    Bytes& limit = problem.limit[rank];
    Bytes largest;
    for (const int stage : stages_of_rank(plan.schedule, static_cast<int>(rank))) {
      largest = std::max(largest, worst_workspace(plan.costs.stages[static_cast<std::size_t>(stage)]));
    }
    limit = std::max(limit - largest, Bytes{0});
    if (!room.empty()) limit += room[rank];
    if (in_flight == 0) continue;
    Bytes of_microbatch;
    for (const int stage : stages_of_rank(plan.schedule, static_cast<int>(rank))) {
      of_microbatch += problem.stages[static_cast<std::size_t>(stage)].kept;
    }
    limit = std::min(limit, of_microbatch * in_flight);
  }
  return problem;
}

// No schedule on these stages that fits takes less, made for their times or not: B in one hides what it may, overlapped
// pairs hide at most all of the shorter action, and a rank holds its states and what F keeps until I alone.
Seconds least_of_stages(const Plan& plan, AutoProblem problem) {
  problem.limit.assign(static_cast<std::size_t>(plan.schedule.ranks), plan.cluster.machine.device.memory.value);
  for (std::size_t stage = 0; stage < problem.stages.size(); ++stage) {
    StageLoad& load = problem.stages[stage];
    const Seconds hidden = plan.costs.stages[stage].hidden_in_backward;  // by B in one
    const Seconds of_weight = std::min(hidden, load.weight_gradient);
    load.weight_gradient -= of_weight;
    load.input_gradient = std::max(load.input_gradient - (hidden - of_weight), Seconds{});
    if (stage == 0 && recomputes_by_action(plan)) load.kept = {};  // its input is tokens
    load.kept_for_weight = {};
    problem.limit[static_cast<std::size_t>(plan.schedule.rank_of_stage[stage])] -=
        states_held(plan.costs.stages[stage]);
  }
  const bool some_too_small = std::ranges::any_of(problem.limit, [](Bytes limit) { return limit < Bytes{}; });
  if (some_too_small) problem.limit.clear();  // told where a schedule is made
  return zb_auto_bound(problem) * least_of_pairs(plan.software.hidden_in_pairs);
}

// Whether a microbatch can be smaller only the plan knows.
std::vector<std::vector<Action>> actions_for_times(const AutoProblem& problem, std::int64_t microbatch) {
  try {
    return schedule_zb_auto(problem).actions;
  } catch (const InputError& error) {
    if (error.hint().empty() || microbatch == 1) throw;
    throw InputError(error.where(), error.problem(), error.hint() + ", or take smaller microbatches");
  }
}

struct DynamicAsked {
  const PlanEffort& effort;
  const CostsOf& costs_of;
  bool for_times = false;  // the schedule will be made for the split
};

// By the plan's schedule; where that is only like the one that will be, the least slowest stage decides.
Split dynamic_of(const Plan& plan, const Scenario& scenario, const std::vector<ComputeCost>& blocks,
                 const DynamicAsked& asked) {
  SplitProblems problems = split_problems(plan, blocks, held_moments(plan), asked.effort.stop);
  if (asked.for_times && stages(plan.schedule) == plan.schedule.ranks) {
    for (const SplitProblem* problem : {&problems.sure, &problems.least}) {
      const std::vector<Split> splits = fast_splits(*problem);
      if (!splits.empty()) return splits.front();
    }
    return split_without_limit(std::move(problems.least));
  }
  SplitSearch search = split_search(plan, asked.effort.thorough);
  if (asked.effort.thorough) {
    search.others = [&] {
      Plan chain = plan;
      chain.costs = costs_beside_stages(plan, scenario);
      return cuts_of_planners(cut_problem(scenario, chain));
    };
  }
  const std::optional<Split> split = fastest_split(problems, weigh_by_path(plan, asked.costs_of), search);
  return split ? *split : split_without_limit(std::move(problems.least));
}

}  // namespace

Plan plan_on(const Scenario& asked, const PlanChoice& choice, const PlanEffort& effort, StagePlacement placement,
             const std::vector<Bytes>& room) {
  static_cast<void>(microbatches_of_rank(asked, choice));  // first of all, as SearchSpace::refusal has it
  require_none(refusals(asked, used_features(asked, choice.schedule)));
  Plan plan{.name = asked.name,
            .model = asked.model,
            .cluster = asked.cluster,
            .training = asked.training,
            .layout = asked.layout,
            .software = asked.software,
            .split_method = std::string(name_of(choice.split.method)),
            .schedule = compute_schedule(asked, choice, placement, effort.stop)};
  plan.training.microbatch = choice.microbatch;
  plan.schedule.slice_tokens = slice_tokens(asked, choice);
  plan.boundary = plan_boundary(plan);
  if (recomputes_by_action(plan)) {
    plan.schedule = with_recompute(std::move(plan.schedule));
  }
  const FeatureSet shared = features_of_all(asked);
  require_planned(plan, shared);
  if (asked.framework) require_none(refusals(asked, used_features(plan, shared)));
  // Zero-bubble schedules are run with messages that wait for nobody, by every system that has them.
  Scenario scenario = asked;
  if (splits_backward(plan.schedule)) scenario.software.exchange = PipelineExchange::asynchronous;
  plan.software = scenario.software;
  const std::vector<ComputeCost> blocks = plan_blocks(plan, scenario);
  const RankBlocks of_ranks = has_stage_data(plan.layout) ? blocks_by_rank(plan, scenario) : RankBlocks{};
  const auto costs_of = [&](const Plan& with_split) {
    return of_ranks.empty() ? pipeline_costs(with_split, scenario, blocks)
                            : stage_data_costs(with_split, scenario, of_ranks);
  };
  plan.split = choose_split(plan, choice.split, blocks, [&] {
    if (!of_ranks.empty()) return split_by_stage_data(plan, of_ranks, costs_of);
    return dynamic_of(plan, scenario, blocks,
                      {.effort = effort, .costs_of = costs_of, .for_times = placement != nullptr});
  });
  plan.costs = costs_of(plan);
  require_host_memory(plan, plan.costs, held_on_host(plan));
  // The split was weighed with the same schedule for equal stages; now that the stages are known, it is made for them.
  if (placement != nullptr) {
    AutoProblem problem = auto_problem(plan, choice.schedule.in_flight, room);
    problem.stop = effort.stop;
    if (effort.at_most) {
      try {
        const Seconds least = least_of_stages(plan, problem);
        if (least > *effort.at_most) throw SlowerThanAsked(least);
      } catch (const InputError&) {  // not even one microbatch fits: told where a schedule is made
      }
    }
    plan.schedule.actions = actions_for_times(problem, choice.microbatch);
    if (recomputes_by_action(plan)) {
      plan.schedule = with_recompute(std::move(plan.schedule));
    }
  }
  return plan;
}

}  // namespace plumb
