#include "common/plan/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/digest.hpp"
#include "common/base/error.hpp"
#include "common/cost/costs_json.hpp"
#include "common/graph/memory.hpp"
#include "common/model/model_json.hpp"
#include "common/plan/block_costs.hpp"
#include "common/plan/fastest_split.hpp"
#include "common/plan/parts_json.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/plan_on.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/registry.hpp"
#include "common/schedule/schedule_json.hpp"
#include "common/schedule/zb_auto.hpp"

namespace plumb {
namespace {

constexpr std::array<std::string_view, 5> split_names = {"uniform", "parameters", "dynamic", "counts", "megatron"};

bool sees_both_ways(const Layer& layer) {
  const auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer);
  return attention != nullptr && !attention->causal;
}

// `placement`: of a schedule that is made for times; none: the schedule's own.
Schedule compute_schedule(const Scenario& scenario, const PlanChoice& choice, Placement placement) {
  const std::int64_t step = choice.microbatch * batch_ways(scenario.layout);
  if (step < 1 || scenario.training.global_batch % step != 0) {
    throw InputError("training", "a microbatch of " + std::to_string(choice.microbatch) +
                                     " does not divide the batch of " + std::to_string(scenario.training.global_batch) +
                                     " sequences");
  }
  const std::int64_t microbatches = scenario.training.global_batch / step;
  if (choice.schedule.slices > 1 && scenario.training.sequence % choice.schedule.slices != 0) {
    throw InputError("training", std::to_string(choice.schedule.slices) + " slices do not divide a sequence of " +
                                     std::to_string(scenario.training.sequence) + " tokens");
  }
  if (choice.schedule.slices > 1 &&
      std::any_of(scenario.model.layers.begin(), scenario.model.layers.end(), sees_both_ways)) {
    throw InputError("schedule",
                     "a slice of a sequence cannot wait for later ones, and this model's attention sees them");
  }
  if (const std::optional<Schedule>& given = choice.schedule.given) {
    if (given->ranks == scenario.layout.pipeline && whole_microbatches(*given) == microbatches) return *given;
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
  const ScheduleShape shape{.ranks = scenario.layout.pipeline,
                            .microbatches = static_cast<int>(microbatches),
                            .chunks = choice.schedule.chunks,
                            .slices = choice.schedule.slices,
                            .group = choice.schedule.group,
                            .update_every = choice.schedule.update_every,
                            .overlap = choice.schedule.overlap};
  if (placement == nullptr) return generate_schedule(choice.schedule.name, shape);
  require_stages(static_cast<int>(scenario.model.layers.size()), shape.ranks * shape.chunks);  // before a long search
  return even_zb_auto(shape, {placement});
}

Bytes workspace(const ComputeCost& block) {
  return std::max(
      {block.forward_workspace_bytes, block.input_gradient_workspace_bytes, block.weight_gradient_workspace_bytes});
}

// The most inputs of microbatches that a rank holds whose F is redone later.
std::int64_t held_inputs(Schedule schedule) {
  for (auto& list : schedule.actions) {
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::recompute; });
  }
  std::int64_t most = 0;
  for (const auto& moments : fullest_moments(schedule)) {
    for (const auto& moment : moments) {
      most = std::max(most, std::accumulate(moment.begin(), moment.end(), std::int64_t{0}));
    }
  }
  return most;
}

// What the ranks need besides the sums that the split problem knows: the worst workspace, two messages on their way in
// and two out, and the inputs that recomputed stages keep.
Bytes reserve(const Plan& plan, const std::vector<ComputeCost>& blocks) {
  Bytes largest;
  for (const ComputeCost& block : blocks) largest = std::max(largest, workspace(block));
  const bool recompute = recomputes_by_action(plan);
  return largest + bytes(plan.boundary) * (4 + (recompute ? held_inputs(plan.schedule) : 0));
}

Split dynamic_of(const Plan& plan, const std::vector<ComputeCost>& blocks, const CostsOf& costs_of) {
  SplitProblem problem = split_problem(plan, blocks);
  if (stages(plan.schedule) > plan.schedule.ranks) {
    if (const std::optional<Split> split = fastest_split(plan, problem, costs_of)) return *split;
  } else if (const std::vector<Split> splits = fast_splits(problem); !splits.empty()) {
    return splits.front();
  }
  problem.memory_per_rank.reset();
  return fast_splits(problem).front();
}

// `costs_of` gives the costs of a plan whose split is settled.
Split choose_split(const Plan& plan, const SplitChoice& choice, const std::vector<ComputeCost>& blocks,
                   const CostsOf& costs_of) {
  const int layers = static_cast<int>(plan.model.layers.size());
  const int count = stages(plan.schedule);
  switch (choice.method) {
    case SplitMethod::uniform:
      return uniform_split(layers, count);
    case SplitMethod::counts:
      return explicit_split(choice.counts, layers, count);
    case SplitMethod::megatron:
      return megatron_split(choice.megatron, layers, count);
    case SplitMethod::parameters: {
      std::vector<std::int64_t> parameters;
      for (const ComputeCost& block : blocks) parameters.push_back(block.parameters);
      return parameter_split(parameters, count);
    }
    case SplitMethod::dynamic:
      break;
  }
  return dynamic_of(plan, blocks, costs_of);
}

// Neighbours of the pipeline stand so many ranks apart; all ranks between them are at the same stage.
int pipeline_stride(const Layout& layout) {
  MeshCoordinates next{};
  next.at(static_cast<std::size_t>(MeshAxis::pipeline)) = 1;
  return layout.pipeline > 1 ? rank_at(layout, next) : ranks(layout);
}

}  // namespace

bool recomputes_by_action(const Plan& plan) {
  return plan.training.recompute.mode == RecomputeMode::full && plan.software.recompute_unit == RecomputeUnit::stage;
}

Bytes sent_boundary_bytes(const Plan& plan) {
  const bool divided = plan.layout.tensor.sequence_parallel || plan.software.scattered_messages;
  return divided ? bytes(plan.boundary) / plan.layout.tensor.degree : bytes(plan.boundary);
}

int pipeline_ranks_per_machine(const Layout& layout, const Machine& machine) {
  return std::max(1, machine.devices / pipeline_stride(layout));
}

std::string_view name_of(SplitMethod method) { return split_names.at(static_cast<std::size_t>(method)); }

namespace {

// Of two replicas both copies of a stage cost the same, and the ranks that hold the same stages do the same: one of
// them stands for both.
std::vector<int> weighed_rank_of_stage(const Schedule& schedule) {
  std::vector<int> ranks = schedule.rank_of_stage;
  if (replicas(schedule) == 1) return ranks;
  for (int stage = 0; stage < stages(schedule); ++stage) {
    const int first = rank_in_replica(schedule, 0, stage);
    const int second = rank_in_replica(schedule, 1, stage);
    if (stages_of_rank(schedule, first) != stages_of_rank(schedule, second)) {
      throw InputError("split", "the dynamic split needs replicas whose ranks hold the same stages");
    }
    ranks[static_cast<std::size_t>(stage)] = std::min(first, second);
  }
  return ranks;
}

std::vector<std::vector<Moment>> weighed_moments(const Schedule& schedule) {
  std::vector<std::vector<Moment>> moments = fullest_moments(schedule);
  if (replicas(schedule) == 1) return moments;
  for (int stage = 0; stage < stages(schedule); ++stage) {
    const auto [rank, other] = std::minmax({rank_in_replica(schedule, 0, stage), rank_in_replica(schedule, 1, stage)});
    auto& of_both = moments[static_cast<std::size_t>(rank)];
    auto& of_other = moments[static_cast<std::size_t>(other)];
    for (Moment& moment : of_other) {
      if (std::ranges::find(of_both, moment) == of_both.end()) of_both.push_back(std::move(moment));
    }
    of_other.clear();
  }
  return moments;
}

}  // namespace

SplitProblem split_problem(const Plan& plan, const std::vector<ComputeCost>& blocks) {
  const bool recompute = recomputes_by_action(plan);
  SplitProblem problem{.block_times = {},
                       .block_fixed_bytes = {},
                       .block_kept_bytes = {},
                       .rank_of_stage = weighed_rank_of_stage(plan.schedule),
                       .moments = weighed_moments(plan.schedule),
                       .memory_per_rank = plan.cluster.machine.device.memory.value - reserve(plan, blocks)};
  for (const ComputeCost& block : blocks) {
    problem.block_times.push_back(microbatch_time(block, recompute));
    problem.block_fixed_bytes.push_back(block.parameter_bytes + block.gradient_bytes + block.optimizer_bytes);
    problem.block_kept_bytes.push_back(block.kept_bytes);
  }
  problem.memory_per_rank = std::max(*problem.memory_per_rank, Bytes{0});
  return problem;
}

namespace {

// What a schedule that is made for the stages' own times is made for. R counts as part of I, before which it stands.
AutoProblem auto_problem(const Plan& plan, const std::vector<ComputeCost>& blocks, int in_flight,
                         const std::vector<Bytes>& room) {
  const bool recompute = recomputes_by_action(plan);
  AutoProblem problem{.ranks = plan.schedule.ranks,
                      .microbatches = plan.schedule.microbatches,
                      .rank_of_stage = plan.schedule.rank_of_stage,
                      .stages = {},
                      .hop = {},
                      .limit = std::vector<Bytes>(static_cast<std::size_t>(plan.schedule.ranks),
                                                  plan.cluster.machine.device.memory.value - reserve(plan, blocks))};
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    const ComputeCost& cost = plan.costs.stages[stage];
    problem.stages.push_back({.forward = cost.forward,
                              .input_gradient = cost.input_gradient + cost.forward * (recompute ? 1 : 0),
                              .weight_gradient = cost.weight_gradient,
                              .kept = recompute ? plan.costs.boundary_bytes : cost.kept_bytes,
                              .kept_for_weight = cost.kept_for_weight_bytes});
    const int rank = plan.schedule.rank_of_stage[stage];
    Bytes& limit = problem.limit[static_cast<std::size_t>(rank)];
    limit -= cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes;
    if (recompute) limit -= cost.kept_bytes;  // of the one that is redone
    if (stage + 1 == plan.costs.stages.size()) break;
    const int next = plan.schedule.rank_of_stage[stage + 1];
    problem.hop.push_back(transfer_time(transfer_between(plan.costs, rank, next), plan.costs.boundary_bytes));
  }
  for (std::size_t rank = 0; rank < problem.limit.size(); ++rank) {
    Bytes& limit = problem.limit[rank];
    limit = std::max(limit, Bytes{0});
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

}  // namespace

Plan plan_on(const Scenario& asked, const PlanChoice& choice, Placement placement, const std::vector<Bytes>& room) {
  Plan plan{.name = asked.name,
            .model = asked.model,
            .cluster = asked.cluster,
            .training = asked.training,
            .layout = asked.layout,
            .software = asked.software,
            .split_method = std::string(name_of(choice.split.method)),
            .schedule = compute_schedule(asked, choice, placement)};
  plan.training.microbatch = choice.microbatch;
  plan.boundary = boundary_manifest(plan.model, plan.training, plan.schedule.slices);
  if (recomputes_by_action(plan)) {
    plan.schedule = with_recompute(std::move(plan.schedule));
  }
  // Zero-bubble schedules are run with messages that wait for nobody, by every system that has them.
  Scenario scenario = asked;
  if (splits_backward(plan.schedule)) scenario.software.exchange = PipelineExchange::asynchronous;
  plan.software = scenario.software;
  const std::vector<ComputeCost> blocks = plan_blocks(plan, scenario);
  const auto costs_of = [&](const Plan& with_split) { return pipeline_costs(with_split, scenario, blocks); };
  plan.split = choose_split(plan, choice.split, blocks, costs_of);
  plan.costs = pipeline_costs(plan, scenario, blocks);
  // The split was weighed with the same schedule for equal stages; now that the stages are known, it is made for them.
  if (placement != nullptr) {
    plan.schedule.actions = schedule_zb_auto(auto_problem(plan, blocks, choice.schedule.in_flight, room)).actions;
    if (recomputes_by_action(plan)) {
      plan.schedule = with_recompute(std::move(plan.schedule));
    }
  }
  return plan;
}

ScheduleChoice choice_of(const Schedule& schedule) {
  ScheduleChoice choice{.name = schedule.name,
                        .chunks = schedule.chunks,
                        .slices = schedule.slices,
                        .update_every = schedule.update_every};
  if (schedule.name.starts_with(schedule_from_file)) {
    choice.given = schedule;
  } else {
    choice.overlap = !schedule.overlapped.empty() && find_schedule(schedule.name).uses_overlap;
  }
  return choice;
}

bool tied_over_ranks(const Plan& plan) { return plan.model.tied_embeddings && ends_on_two_ranks(plan.schedule); }

Schedule lowered_schedule(const Plan& plan) {
  return lower(
      plan.schedule,
      {.optimizer = true, .data_parallel = plan.layout.data.degree > 1, .tied_embeddings = plan.model.tied_embeddings});
}

std::string plan_digest(const Plan& plan) {
  Json shapes = to_json(plan.model);
  shapes.erase("name");
  std::string text = to_line(shapes) + to_line(to_json(plan.training)) + to_line(to_json(plan.layout));
  for (const int layers : plan.split.layers) text += " " + std::to_string(layers);
  Json schedule = to_json(plan.schedule);
  schedule.erase("name");
  return digest(text + to_line(schedule));
}

std::string costs_digest(const PipelineCosts& costs) { return digest(to_line(to_json(costs))); }

}  // namespace plumb
