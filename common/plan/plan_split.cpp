// How the layers of a plan are shared out to its stages.
#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/memory.hpp"
#include "common/plan/plan_on.hpp"

namespace plumb {
namespace {

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

}  // namespace

// What the ranks need besides the sums that the split problem knows: the worst workspace, two messages on their way in
// and two out, and the inputs that recomputed stages keep.
Bytes reserve(const Plan& plan, const std::vector<ComputeCost>& blocks, std::int64_t inputs) {
  Bytes largest;
  for (const ComputeCost& block : blocks) largest = std::max(largest, workspace(block));
  return largest + bytes(plan.boundary) * (4 + inputs);
}

Split dynamic_of(SplitProblem problem, bool several, const FastestOf& fastest) {
  if (several) {
    if (const std::optional<Split> split = fastest(problem)) return *split;
  } else if (const std::vector<Split> splits = fast_splits(problem); !splits.empty()) {
    return splits.front();
  }
  // Nothing fits: the first of the fast splits without a limit, without the search for the others.
  problem.memory_per_rank.reset();
  return evened(problem, dynamic_split(problem).value());
}

Split choose_split(const Plan& plan, const SplitChoice& choice, const std::vector<ComputeCost>& blocks,
                   const std::function<Split()>& dynamic) {
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
  return dynamic();
}

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

HeldMoments held_moments(const Plan& plan) {
  return {.rank_of_stage = weighed_rank_of_stage(plan.schedule),
          .moments = weighed_moments(plan.schedule),
          .inputs = recomputes_by_action(plan) ? held_inputs(plan.schedule) : 0};
}

SplitProblem split_problem(const Plan& plan, const std::vector<ComputeCost>& blocks) {
  return split_problem(plan, blocks, held_moments(plan));
}

SplitProblem split_problem(const Plan& plan, const std::vector<ComputeCost>& blocks, const HeldMoments& held) {
  const bool recompute = recomputes_by_action(plan);
  SplitProblem problem{
      .block_times = {},
      .block_fixed_bytes = {},
      .block_kept_bytes = {},
      .rank_of_stage = held.rank_of_stage,
      .moments = held.moments,
      .memory_per_rank = plan.cluster.machine.device.memory.value - reserve(plan, blocks, held.inputs)};
  for (const ComputeCost& block : blocks) {
    problem.block_times.push_back(microbatch_time(block, recompute));
    problem.block_fixed_bytes.push_back(block.parameter_bytes + block.gradient_bytes + block.optimizer_bytes);
    problem.block_kept_bytes.push_back(block.kept_bytes);
  }
  problem.memory_per_rank = std::max(*problem.memory_per_rank, Bytes{0});
  return problem;
}

}  // namespace plumb
