#include "common/planner/unfolded.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/planner/own_cores.hpp"
#include "common/planner/stage_programs.hpp"
#include "common/planner/traffic.hpp"

namespace plumb {
namespace {

// What ranks of a tensor group have summands of is added up first; nothing: there is none.
std::vector<ActionPart> optimizer_parts(const ComputeCost& cost, CollectiveTable& table) {
  std::vector<ActionPart> parts;
  Seconds updating = cost.optimizer;
  const auto add = [&](Bytes bytes, Axes over) {
    if (bytes == Bytes{}) return;
    parts.push_back({.collective = table.index(Collective::all_reduce, static_cast<double>(bytes.value), over)});
    updating -= time_of(table.at(parts.back().collective));
  };
  if (cost.grid_sums.empty()) add(cost.tensor_gradient_bytes, {});
  for (const TensorSum& sum : cost.grid_sums) add(sum.bytes, sum.over);
  if (!parts.empty()) parts.push_back({.compute = updating});
  return parts;
}

// What the plan's costs have more than the parts is shared out over them.
StageParts parts_of_stage(const Plan& plan, const StagePrograms& programs, int stage, int slice,
                          CollectiveTable& table) {
  const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
  const ActionTimes times = times_of(cost, slice);
  const auto parts = [&](ActionKind kind, Seconds whole) {
    std::vector<ActionPart> all;
    for (const BlockPass& pass : programs.passes(stage, kind)) {
      append_parts(all, action_parts(pass.program->steps, pass.phases, table));
    }
    stretch(all, whole - time_of(all, table));
    return all;
  };
  StageParts all{.forward = parts(ActionKind::forward, times.forward),
                 .input_gradient = parts(ActionKind::input_gradient, times.input_gradient),
                 .weight_gradient = parts(ActionKind::weight_gradient, times.weight_gradient),
                 .backward = parts(ActionKind::backward, backward_time(times))};
  all.optimizer = optimizer_parts(cost, table);
  return all;
}

// Of one stage the computing of each block of an action, in the order of the action, in parts that add up to `times`.
class BlockComputing {
 public:
  // `programs`: null where no tensor group shares a block out.
  BlockComputing(const StagePrograms* programs, int stage, CollectiveTable& table)
      : programs_(programs), stage_(stage), table_(table) {}

  [[nodiscard]] std::vector<std::vector<ActionPart>> parts(ActionKind kind, const std::vector<Seconds>& times) const {
    std::vector<std::vector<ActionPart>> all(times.size());
    if (programs_ == nullptr) {
      for (std::size_t n = 0; n < times.size(); ++n) all[n] = {{.compute = times[n]}};
      return all;
    }
    std::size_t block = 0;
    for (const BlockPass& pass : programs_->passes(stage_, kind)) {
      append_parts(all.at(block), action_parts(pass.program->steps, pass.phases, table_));
      // A forward that is redone stands before its block's backward.
      const bool redone = kind != ActionKind::forward && pass.phases == std::vector{Phase::forward};
      if (!redone) ++block;
    }
    for (std::size_t n = 0; n < times.size(); ++n) {
      const bool computes = std::ranges::any_of(all[n], [](const ActionPart& part) { return part.compute.value > 0; });
      if (!computes) all[n].push_back({.compute = times[n] - time_of(all[n], table_)});
      if (computes) stretch(all[n], times[n] - time_of(all[n], table_));
    }
    return all;
  }

 private:
  const StagePrograms* programs_;
  int stage_;
  CollectiveTable& table_;
};

// What of a block's time an action of this kind computes, its own gathering and reducing left out.
Seconds computing_of(const ComputeCost& block, ActionKind kind, int slice) {
  const ActionTimes times = times_of(block, slice);
  const DataWaits& waits = block.data_moves.waits;
  switch (kind) {
    case ActionKind::input_gradient:
      return times.input_gradient - waits.input_gradient;
    case ActionKind::weight_gradient:
      return times.weight_gradient - waits.weight_gradient;
    case ActionKind::backward:
      return backward_time(times) - waits.backward;
    default:
      return times.forward - waits.forward;
  }
}

// By kind of action, of a stage of these blocks.
std::map<ActionKind, ActionBlocks> action_blocks(const Plan& plan, std::span<const ComputeCost> blocks, int slice,
                                                 const BlockComputing& computing) {
  const ShardMoves collectives = shard_moves(plan, shard_groups(plan.layout, plan.cluster));
  std::vector<ActionKind> kinds{ActionKind::forward, ActionKind::input_gradient, ActionKind::weight_gradient,
                                ActionKind::backward};
  if (plan.layout.data.secondary_shard > 0) kinds.push_back(ActionKind::recompute);
  std::map<ActionKind, ActionBlocks> all;
  for (const ActionKind kind : kinds) {
    const bool forward = kind == ActionKind::forward || kind == ActionKind::recompute;
    std::vector<const ComputeCost*> order;
    for (const ComputeCost& block : blocks) order.push_back(&block);
    if (!forward) std::ranges::reverse(order);
    std::vector<Seconds> times;
    for (const ComputeCost* block : order) times.push_back(computing_of(*block, kind, slice));
    const std::vector<std::vector<ActionPart>> parts = computing.parts(forward ? ActionKind::forward : kind, times);
    ActionBlocks& action = all[kind];
    action.prefetch = blocks_ahead(plan.layout, plan.software);
    Bytes gathered;
    Bytes reduced;
    for (std::size_t n = 0; n < order.size(); ++n) {
      // Blocks that are moved as one are one.
      const bool begins = n == 0 || !order[forward ? n : n - 1]->data_moves.joined;
      if (begins) {
        action.blocks.push_back({.parts = parts[n]});
        gathered = reduced = {};
      }
      BlockParts& block = action.blocks.back();
      if (!begins) append_parts(block.parts, parts[n]);
      gathered += order[n]->data_moves.gathered;
      reduced += order[n]->data_moves.reduced;
      const bool gathers = kind != ActionKind::weight_gradient && gathered > Bytes{};
      const bool reduces = (kind == ActionKind::weight_gradient || kind == ActionKind::backward) && reduced > Bytes{};
      if (gathers) {
        block.gathering =
            kind == ActionKind::forward ? collectives.gathering(gathered) : collectives.gathering_again(gathered);
      }
      if (reduces) block.reducing = collectives.reduction(reduced);
      if (gathers && order[n]->parameter_moves.beside) block.weights_up = order[n]->parameter_moves.copying;
      const ActivationMoves& activations = order[n]->activation_moves;
      if (!activations.beside || !copies_activations(kind)) continue;
      (kind == ActionKind::forward ? block.copied_behind : block.copied_before) = activations.copying;
    }
  }
  return all;
}

// Of each stage the rank that ends its last action last, the first of equal ones.
std::vector<int> slowest_ranks(const Layout& layout, const ScheduleGraph& graph, const Evaluation& evaluation) {
  std::vector<Seconds> end_of(static_cast<std::size_t>(graph.ranks));
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!occupies_rank(node)) continue;
    Seconds& end = end_of[static_cast<std::size_t>(node.rank)];
    end = std::max(end, evaluation.end[id]);
  }
  std::vector<int> slowest;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const auto first = end_of.begin() + first_rank(layout, stage);
    slowest.push_back(static_cast<int>(std::max_element(first, first + stage_width(layout, stage)) - end_of.begin()));
  }
  return slowest;
}

// Ranks that are looked at together, by the folded one for which each stands: a lane, or where stages have different
// data degrees each rank alone.
std::vector<std::vector<int>> views(const Layout& layout) {
  std::vector<std::vector<int>> all;
  if (!has_stage_data(layout)) {
    for (Lane& lane : lanes_of(layout)) all.push_back(std::move(lane.ranks));
    return all;
  }
  for (int rank = 0; rank < ranks(layout); ++rank) {
    std::vector<int> alone(static_cast<std::size_t>(layout.pipeline), all_ranks);
    alone[static_cast<std::size_t>(coordinates(layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline)))] = rank;
    all.push_back(std::move(alone));
  }
  return all;
}

// The longest path knows no shared cores: what a stage's ranks take of each other stays in its times.
Plan as_unfolded(const Plan& plan, std::string_view engine) {
  return engine == path_engine ? plan : on_own_cores(plan);
}

}  // namespace

// Of a profile, which is not in a plan, nothing is known of blocks.
static void require_known_blocks(const Plan& plan) {
  if (!has_measured_costs(plan) || (!gathers_in_actions(plan.layout) && !reduces_in_actions(plan.layout))) return;
  throw InputError("layout",
                   "--unfold of measured costs cannot be where actions gather weights or reduce gradients themselves",
                   "leave --unfold out, or data: {reshard_after_forward: false, reduce: last_microbatch}");
}

UnfoldingDetails unfolding_details(const Plan& plan) {
  require_known_blocks(plan);
  UnfoldingDetails details{
      .stages = {},
      .collectives = CollectiveTable(machine_in_training(scenario_of(plan)), tensor_groups(plan.layout, plan.cluster)),
      .slices = plan.schedule.slices};
  const std::vector<StageReduction> reductions = planned_reductions(plan);
  const bool divides = plan.layout.tensor.degree > 1 && !has_stage_data(plan.layout);
  std::vector<StagePrograms> programs;  // by slice
  if (divides) {
    for (const Slice& slice : slices_of(plan)) programs.emplace_back(plan, slice);
  }
  const bool in_actions = gathers_in_actions(plan.layout) || reduces_in_actions(plan.layout);
  const std::vector<ComputeCost> blocks = in_actions ? blocks_as_split(plan) : std::vector<ComputeCost>{};
  for (int stage = 0; stage < all_stages(plan.schedule); ++stage) {
    for (int slice = 0; slice < details.slices; ++slice) {
      StageParts parts;
      if (!programs.empty()) {
        parts = parts_of_stage(plan, programs[static_cast<std::size_t>(slice)], stage, slice, details.collectives);
      }
      if (in_actions) {
        const StagePrograms* own = programs.empty() ? nullptr : &programs[static_cast<std::size_t>(slice)];
        parts.blocks = action_blocks(plan, stage_blocks(blocks, plan.split, stage), slice,
                                     BlockComputing(own, stage, details.collectives));
      }
      parts.reduction = reductions[static_cast<std::size_t>(stage)];
      parts.gathering = planned_gathering(plan, stage);
      details.stages.push_back(std::move(parts));
    }
  }
  return details;
}

UnfoldedGraph unfolded_graph(const Plan& plan, const ScheduleGraph& folded, const UnfoldingRoom& room) {
  const UnfoldingDetails details = unfolding_details(plan);
  const UnfoldedSize size = unfolded_size(folded, plan.costs, plan.layout, details);
  require_room(plan, folded, size, room);
  return unfold(folded, plan.costs, plan.layout, details, size);
}

Timeline unfolded_timeline(const Plan& plan, std::string_view engine, const RunGraph& run, const UnfoldingRoom& room) {
  const Schedule lowered = lowered_schedule(plan);
  const Plan own = as_unfolded(plan, engine);
  const ScheduleGraph folded = build_graph(lowered, own.costs);
  const UnfoldedGraph unfolded = unfolded_graph(own, folded, room);
  const Evaluation evaluation = run(unfolded.graph);
  Timeline timeline = timeline_head(plan, lowered, TimelineSource::predicted, std::string(engine));
  timeline.ranks.resize(static_cast<std::size_t>(unfolded.graph.ranks));
  timeline.memory.resize(timeline.ranks.size());
  std::vector<Event> events;
  for (const std::vector<int>& rank_of : views(plan.layout)) {
    const auto shown = [&](int folded_rank) { return rank_of[static_cast<std::size_t>(folded_rank)]; };
    PredictedStep predicted =
        predicted_step(lowered, plan.costs, folded, folded_back(folded, unfolded, evaluation, rank_of));
    for (std::size_t stage = 0; stage < rank_of.size(); ++stage) {
      if (rank_of[stage] == all_ranks) continue;
      timeline.ranks[static_cast<std::size_t>(rank_of[stage])] = predicted.ranks[stage];
      timeline.memory[static_cast<std::size_t>(rank_of[stage])] = std::move(predicted.memory[stage]);
    }
    if (events.empty()) {  // as many of each stage as it has ranks
      const int of_stage = ranks(plan.layout) / plan.layout.pipeline;
      events.reserve(predicted.step.events.size() * static_cast<std::size_t>(of_stage));
    }
    for (Event& event : predicted.step.events) {
      if (shown(event.rank) == all_ranks) continue;
      event.rank = shown(event.rank);
      if (event.peer >= 0) {
        event.peer = shown(event.peer) == all_ranks ? first_rank(plan.layout, event.peer) : shown(event.peer);
      }
      events.push_back(event);
    }
  }
  timeline.steps.push_back(ordered_step(std::move(events)));
  tell_beside(timeline, plan);
  count_received(timeline, plan);
  return timeline;
}

Timeline folded_back_timeline(const Plan& plan, std::string_view engine, const RunGraph& run,
                              const UnfoldingRoom& room) {
  const Schedule lowered = lowered_schedule(plan);
  const Plan own = as_unfolded(plan, engine);
  const ScheduleGraph folded = build_graph(lowered, own.costs);
  const UnfoldedGraph unfolded = unfolded_graph(own, folded, room);
  const Evaluation evaluation = run(unfolded.graph);
  const Evaluation of_slowest =
      folded_back(folded, unfolded, evaluation, slowest_ranks(plan.layout, unfolded.graph, evaluation));
  return predicted_timeline(plan, lowered, folded, of_slowest, std::string(engine));
}

}  // namespace plumb
