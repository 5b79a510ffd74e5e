#include "common/planner/unfolded.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/block_cost/block_costs.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/planner/stage_programs.hpp"
#include "common/planner/traffic.hpp"
#include "common/planner/unfolded_stages.hpp"

namespace plumb {
namespace {

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
  if (cost.tensor_gradient_bytes > Bytes{}) {
    const std::int32_t sum = table.index(Collective::all_reduce, static_cast<double>(cost.tensor_gradient_bytes.value));
    all.optimizer = {{.collective = sum}, {.compute = cost.optimizer - time_of(table.at(sum))}};
  }
  return all;
}

}  // namespace

UnfoldingDetails unfolding_details(const Plan& plan) {
  const Machine& machine = plan.cluster.machine;
  UnfoldingDetails details{.stages = {},
                           .collectives = CollectiveTable(machine_in_training(scenario_of(plan)),
                                                          placement(plan.layout, MeshAxis::tensor, plan.cluster)),
                           .slices = plan.schedule.slices};
  const GroupPlacement data = reduction_placement(plan, 0);
  std::vector<StagePrograms> programs;  // by slice
  if (plan.layout.tensor.degree > 1) {
    for (const Slice& slice : slices_of(plan)) programs.emplace_back(plan, slice);
  }
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    const Bytes gradients = plan.costs.stages[static_cast<std::size_t>(stage)].gradient_bytes;
    for (int slice = 0; slice < details.slices; ++slice) {
      StageParts parts;
      if (!programs.empty()) {
        parts = parts_of_stage(plan, programs[static_cast<std::size_t>(slice)], stage, slice, details.collectives);
      }
      parts.reduction = fastest_collective(machine, Collective::all_reduce, static_cast<double>(gradients.value), data);
      details.stages.push_back(std::move(parts));
    }
  }
  return details;
}

UnfoldedGraph unfolded_graph(const Plan& plan, const ScheduleGraph& folded) {
  return unfold(folded, plan.costs, plan.layout, unfolding_details(plan));
}

Timeline unfolded_timeline(const Plan& plan, std::string_view engine,
                           const std::function<Evaluation(const UnfoldedGraph&)>& run) {
  if (has_stage_data(plan.layout)) {
    return unfolded_stages_timeline(plan, engine, [&](const ScheduleGraph& graph) { return run({.graph = graph}); });
  }
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph folded = build_graph(lowered, plan.costs);
  UnfoldedGraph unfolded = unfolded_graph(plan, folded);
  const Evaluation evaluation = run(unfolded);
  Timeline timeline = timeline_head(plan, lowered, TimelineSource::predicted, std::string(engine));
  timeline.ranks.resize(static_cast<std::size_t>(unfolded.graph.ranks));
  timeline.memory.resize(timeline.ranks.size());
  std::vector<Event> events;
  for (int lane = 0; lane < unfolded.lanes; ++lane) {
    PredictedStep predicted = predicted_step(lowered, plan.costs, folded, in_lane(unfolded, evaluation, lane));
    for (std::size_t rank = 0; rank < predicted.ranks.size(); ++rank) {
      const int place = rank_in_lane(unfolded, static_cast<int>(rank), lane);
      timeline.ranks[static_cast<std::size_t>(place)] = predicted.ranks[rank];
      timeline.memory[static_cast<std::size_t>(place)] = std::move(predicted.memory[rank]);
    }
    for (Event& event : predicted.step.events) {
      event.rank = rank_in_lane(unfolded, event.rank, lane);
      if (event.peer >= 0) event.peer = rank_in_lane(unfolded, event.peer, lane);
      events.push_back(event);
    }
  }
  timeline.steps.push_back(ordered_step(std::move(events)));
  count_received(timeline, plan);
  return timeline;
}

}  // namespace plumb
