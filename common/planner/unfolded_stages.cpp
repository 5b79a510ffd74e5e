#include "common/planner/unfolded_stages.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/plan/plan_costs.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/planner/traffic.hpp"

namespace plumb {
namespace {

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

}  // namespace

UnfoldedStages unfolded_stages(const Plan& plan, const ScheduleGraph& folded) {
  std::vector<CollectivePlan> reductions;
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    const GroupPlacement group = reduction_placement(plan, plan.schedule.rank_of_stage[stage]);
    reductions.push_back(fastest_collective(plan.cluster.machine, Collective::all_reduce,
                                            static_cast<double>(plan.costs.stages[stage].gradient_bytes.value), group));
  }
  return unfold_stages(folded, plan.costs, plan.layout, reductions);
}

Timeline unfolded_stages_timeline(const Plan& plan, std::string_view engine, const RunGraph& run) {
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph folded = build_graph(lowered, plan.costs);
  const UnfoldedStages unfolded = unfolded_stages(plan, folded);
  const Evaluation evaluation = run(unfolded.graph);
  Timeline timeline = timeline_head(plan, lowered, TimelineSource::predicted, std::string(engine));
  std::vector<Event> events;
  for (int stage = 0; stage < plan.layout.pipeline; ++stage) {
    for (int lane = 0; lane < stage_width(plan.layout, stage); ++lane) {
      const int rank = first_rank(plan.layout, stage) + lane;
      PredictedStep predicted = predicted_step(lowered, plan.costs, folded, folded_back(unfolded, evaluation, {rank}));
      timeline.ranks.push_back(predicted.ranks[static_cast<std::size_t>(stage)]);
      timeline.memory.push_back(std::move(predicted.memory[static_cast<std::size_t>(stage)]));
      for (Event& event : predicted.step.events) {
        if (event.rank != stage) continue;
        event.rank = rank;
        if (event.peer >= 0) event.peer = first_rank(plan.layout, event.peer);
        events.push_back(event);
      }
    }
  }
  timeline.steps.push_back(ordered_step(std::move(events)));
  count_received(timeline, plan);
  return timeline;
}

Timeline folded_back_timeline(const Plan& plan, std::string_view engine, const RunGraph& run) {
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph folded = build_graph(lowered, plan.costs);
  const UnfoldedStages unfolded = unfolded_stages(plan, folded);
  const Evaluation evaluation = run(unfolded.graph);
  const Evaluation of_slowest =
      folded_back(unfolded, evaluation, slowest_ranks(plan.layout, unfolded.graph, evaluation));
  return predicted_timeline(plan, lowered, folded, of_slowest, std::string(engine));
}

}  // namespace plumb
