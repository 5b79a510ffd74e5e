#include "common/planner/unfolded.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/block_cost/block_costs.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/planner/traffic.hpp"
#include "common/planner/unfolded_stages.hpp"

namespace plumb {
namespace {

// The blocks of one stage, forward in order, backward against it.
class StageWriter {
 public:
  // `redone`: by layer, those whose forward is redone inside the backward.
  StageWriter(const Plan& plan, const Scenario& scenario, const std::vector<bool>& redone, CollectiveTable& table)
      : plan_(plan), scenario_(scenario), redone_(redone), table_(table) {}

  // `microbatch`: one of the slice, as the schedule counts.
  StageParts write(int stage, int microbatch, Slice slice) {
    const BlockRange range = blocks_of_stage(plan_.split, stage);
    std::vector<bool> redone;  // by block of the stage
    for (int block = range.first; block < range.last; ++block) {
      const auto number = static_cast<std::size_t>(block);
      kernels_.push_back(kernels_of_block(scenario_, number, slice));
      redone.push_back(number > 0 && number <= redone_.size() && redone_[number - 1]);
    }
    StageParts parts;
    for (const std::vector<Kernel>& kernels : kernels_) add(parts.forward, kernels, {Phase::forward});
    for (std::size_t i = kernels_.size(); i-- > 0;) {
      if (redone[i]) add(parts.input_gradient, kernels_[i], {Phase::forward});
      if (redone[i]) add(parts.backward, kernels_[i], {Phase::forward});
      add(parts.input_gradient, kernels_[i], {Phase::input_gradient});
      add(parts.weight_gradient, kernels_[i], {Phase::weight_gradient});
      add(parts.backward, kernels_[i], {Phase::input_gradient, Phase::weight_gradient});
    }
    const ActionTimes times = times_of(plan_.costs.stages[static_cast<std::size_t>(stage)], microbatch);
    stretch(parts.forward, times.forward - time_of(parts.forward, table_));
    stretch(parts.input_gradient, times.input_gradient - time_of(parts.input_gradient, table_));
    stretch(parts.weight_gradient, times.weight_gradient - time_of(parts.weight_gradient, table_));
    stretch(parts.backward, backward_time(times) - time_of(parts.backward, table_));
    return parts;
  }

 private:
  void add(std::vector<ActionPart>& parts, const std::vector<Kernel>& kernels, const std::vector<Phase>& phases) {
    append_parts(parts, action_parts(kernels, phases, table_));
  }

  const Plan& plan_;
  const Scenario& scenario_;
  const std::vector<bool>& redone_;
  CollectiveTable& table_;
  std::vector<std::vector<Kernel>> kernels_;
};

}  // namespace

UnfoldingDetails unfolding_details(const Plan& plan) {
  const Scenario scenario = scenario_of(plan);
  const Machine& machine = plan.cluster.machine;
  UnfoldingDetails details{.stages = {},
                           .collectives = CollectiveTable(machine_in_training(scenario),
                                                          placement(plan.layout, MeshAxis::tensor, plan.cluster)),
                           .slices = plan.schedule.slices};
  const GroupPlacement data = reduction_placement(plan, 0);
  const std::vector<bool> redone = layers_redone_inside(plan);
  const std::vector<Slice> slices = slices_of(plan);
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    const Bytes gradients = plan.costs.stages[static_cast<std::size_t>(stage)].gradient_bytes;
    for (int slice = 0; slice < details.slices; ++slice) {
      StageParts parts;
      if (plan.layout.tensor.degree > 1) {
        const Slice own = slices[static_cast<std::size_t>(slice)];
        parts = StageWriter(plan, scenario, redone, details.collectives).write(stage, slice, own);
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
