// How the layers of a plan are shared out to its stages.
#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/cost/moves_in_sequence.hpp"
#include "common/cost/stage_workspace.hpp"
#include "common/graph/memory.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/planner/plan_on.hpp"
#include "common/schedule/move_order.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {
namespace {

// Of each rank the most inputs of microbatches that it keeps whose F is redone later. The first stage's weighs nothing,
// unless it is what the parts of a vocabulary have looked up.
std::vector<std::int64_t> held_inputs(Schedule schedule) {
  for (auto& list : schedule.actions) {
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::recompute; });
  }
  const bool looked_up = schedule.vocabulary_barriers > 0;
  std::vector<std::int64_t> inputs;
  for (const auto& moments : fullest_moments(schedule)) {
    const std::vector<int> own = stages_of_rank(schedule, static_cast<int>(inputs.size()));
    std::int64_t& most = inputs.emplace_back(0);
    for (const auto& moment : moments) {
      std::int64_t sum = 0;
      for (std::size_t n = 0; n < moment.size(); ++n) sum += own[n] > 0 || looked_up ? moment[n] : 0;
      most = std::max(most, sum);
    }
  }
  return inputs;
}

}  // namespace

Split split_without_limit(SplitProblem problem) {
  problem.memory_per_rank.reset();
  const WeighedChain chain(problem);
  return evened(chain, dynamic_split(chain).value());
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
  ranks.resize(static_cast<std::size_t>(stages(schedule)));
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

// `moments`: of the schedule's ranks.
std::vector<std::vector<Moment>> weighed_moments(const Schedule& schedule, std::vector<std::vector<Moment>> moments) {
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

// Messages that each rank may have at once: of each neighbour one on its way in and one out, if there is such a
// neighbour.
std::vector<std::int64_t> most_messages(const Schedule& schedule, const std::vector<int>& rank_of_stage,
                                        std::size_t ranks) {
  constexpr std::int64_t of_two_neighbours = 4;
  const bool both_ways = replicas(schedule) > 1;
  std::vector<std::int64_t> messages(ranks, both_ways ? of_two_neighbours : 0);
  if (both_ways) return messages;
  for (std::size_t stage = 0; stage + 1 < rank_of_stage.size(); ++stage) {
    const auto from = static_cast<std::size_t>(rank_of_stage[stage]);
    const auto to = static_cast<std::size_t>(rank_of_stage[stage + 1]);
    messages[from] += 2;
    if (to != from) messages[to] += 2;
  }
  for (std::int64_t& of_rank : messages) of_rank = std::min(of_rank, of_two_neighbours);
  return messages;
}

}  // namespace

HeldMoments held_moments(const Plan& plan) {
  HeldMoments held{.rank_of_stage = weighed_rank_of_stage(plan.schedule),
                   .moments = weighed_moments(plan.schedule, fullest_moments(plan.schedule))};
  held.has_full_backward = has_action(plan.schedule, ActionKind::backward);
  if (splits_backward(plan.schedule)) {
    held.moments_until_input = weighed_moments(plan.schedule, fullest_moments_until_input(plan.schedule));
  }
  if (recomputes_by_action(plan)) held.inputs = held_inputs(plan.schedule);
  return held;
}

namespace {

// As if every neighbour were of the same stage.
void add_neighbours(std::vector<BlockWorkspace>& workspaces, const std::vector<ComputeCost>& blocks, bool splits) {
  const std::vector<MovedBytes> all = moved_for_neighbours(blocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!moves_beside(blocks[i])) continue;
    const MovedBytes& moved = all[i];
    workspaces[i].forward += moved.forward;
    workspaces[i].input_gradient += moved.input_gradient + (splits ? Bytes{} : moved.weight_gradient);
    workspaces[i].weight_gradient += splits ? moved.weight_gradient : Bytes{};
  }
}

// Any rank.
bool has_several_stages(std::vector<int> rank_of_stage) {
  std::ranges::sort(rank_of_stage);
  return std::ranges::adjacent_find(rank_of_stage) != rank_of_stage.end();
}

// The most of units of layers, wherever the split lets them begin: each block's own, of which it may be any, and those
// that are gathered ahead and under way.
void add_units(std::vector<BlockWorkspace>& workspaces, const std::vector<ComputeCost>& blocks, const Plan& plan,
               bool splits) {
  const std::size_t others = static_cast<std::size_t>(plan.layout.data.layers_per_unit) - 1;
  const int prefetch = blocks_ahead(plan.layout, plan.software);
  const std::size_t ahead = static_cast<std::size_t>(prefetch) * (others + 1);
  const std::size_t reducing = static_cast<std::size_t>(reductions_under_way(prefetch)) * (others + 1);
  const auto sum = [&](Bytes DataMoves::*moved, std::size_t block, std::size_t before, std::size_t behind) {
    Bytes all;
    const std::size_t end = std::min(block + behind + 1, blocks.size());
    for (std::size_t n = block - std::min(block, before); n < end; ++n) all += blocks[n].data_moves.*moved;
    return all;
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Bytes reduced = sum(&DataMoves::reduced, i, others, others + reducing);
    workspaces[i].forward += sum(&DataMoves::gathered, i, others, others + ahead);
    workspaces[i].input_gradient += sum(&DataMoves::gathered, i, others + ahead, others) + (splits ? Bytes{} : reduced);
    workspaces[i].weight_gradient += splits ? reduced : Bytes{};
  }
}

void add_moved(std::vector<BlockWorkspace>& workspaces, const std::vector<ComputeCost>& blocks, const Plan& plan,
               bool splits) {
  if (gathers_in_units(plan.layout)) return add_units(workspaces, blocks, plan, splits);
  add_neighbours(workspaces, blocks, splits);
}

}  // namespace

SplitProblems split_problems(const Plan& plan, const std::vector<ComputeCost>& blocks, HeldMoments held,
                             const Stop* stop) {
  const bool recompute = recomputes_by_action(plan);
  const bool splits = !held.moments_until_input.empty();  // of its actions the plan may have none here
  SplitProblem sure{.block_times = {},
                    .block_fixed_bytes = {},
                    .block_kept_bytes = {},
                    .rank_of_stage = std::move(held.rank_of_stage),
                    .moments = {},
                    .memory_per_rank = plan.cluster.machine.device.memory.value,
                    .stop = stop};
  SplitProblem least = sure;
  ComputeCost largest_slice;
  ComputeCost smallest_slice;
  std::vector<Bytes> least_fixed;
  least_fixed.reserve(blocks.size());
  for (SplitProblem* problem : {&sure, &least}) {
    problem->block_times.reserve(blocks.size());
    problem->block_fixed_bytes.reserve(blocks.size());
    problem->block_kept_bytes.reserve(blocks.size());
    problem->block_workspaces.reserve(blocks.size());
  }
  for (const ComputeCost& block : blocks) {
    const bool alike = block.slice_bytes.empty();  // then a candidate's blocks need no copies
    sure.block_times.push_back(microbatch_time(block, recompute));
    sure.block_fixed_bytes.push_back(states_held(block));
    least_fixed.push_back(states_held(block) - block.data_moves.unsharded);
    const ComputeCost& largest = alike ? block : largest_slice = as_largest_slice(block);
    // Moments count a microbatch until its backward ends, wherever it stands then.
    sure.block_kept_bytes.push_back(most_kept(largest, splits ? BackwardIn::two : BackwardIn::one));
    sure.block_workspaces.push_back(splits ? block_workspace(largest) : in_full_backward(largest));
    const ComputeCost& smallest = alike ? block : smallest_slice = as_smallest_slice(block);
    least.block_kept_bytes.push_back(smallest.kept_bytes);
    least.block_workspaces.push_back(splits ? block_workspace(smallest) : in_full_backward(smallest));
    // During a full backward nothing waits for W.
    if (splits && held.has_full_backward) least.block_workspaces.back().kept_for_weight = {};
  }
  add_moved(sure.block_workspaces, blocks, plan, splits);
  least.block_times = sure.block_times;
  const bool several = has_several_stages(sure.rank_of_stage);
  // Of several stages of a rank some may gather their weights once a step only behind its fullest moment.
  least.block_fixed_bytes = several ? std::move(least_fixed) : sure.block_fixed_bytes;
  const Bytes message = sent_boundary_bytes(plan);
  const PartMemory parts = part_memory(plan);
  const std::vector<std::int64_t> messages = most_messages(plan.schedule, sure.rank_of_stage, held.moments.size());
  for (std::size_t rank = 0; rank < held.moments.size(); ++rank) {
    sure.rank_reserve.push_back(message * (messages[rank] + (held.inputs.empty() ? 0 : held.inputs[rank])) +
                                parts.most);
  }
  if (parts.least > Bytes{}) least.rank_reserve.assign(held.moments.size(), parts.least);
  sure.moments = std::move(held.moments);
  if (held.moments_until_input.empty()) {
    least.moments = sure.moments;
  } else {
    least.moments = std::move(held.moments_until_input);
    for (BlockWorkspace& of : least.block_workspaces) of.weight_gradient = {};
  }
  // Layers that are redone in their backward, which depends on the split, keep less than these blocks.
  if (costs_depend_on_split(plan.training.recompute)) least.block_kept_bytes.assign(blocks.size(), Bytes{});
  if (several || costs_depend_on_split(plan.training.recompute)) least.block_workspaces.clear();
  return {.sure = std::move(sure), .least = std::move(least)};
}

}  // namespace plumb
