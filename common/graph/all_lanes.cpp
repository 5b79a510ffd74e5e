#include "common/graph/all_lanes.hpp"

#include <utility>

#include "common/graph/unfold.hpp"

namespace plumb {
namespace {

CollectivePlan lasting(Seconds time) {
  CollectivePlan plan{.count = 1};
  plan.phases.front().time = time;
  return plan;
}

}  // namespace

ScheduleGraph in_all_lanes(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout) {
  UnfoldingDetails details{.stages = {}, .collectives = CollectiveTable(Machine{}, GroupPlacement{})};
  for (const ComputeCost& cost : costs.stages) {
    details.stages.push_back(
        {.reduction = {.shards = {lasting(cost.gradient_reduction)}}, .gathering = {lasting(cost.weight_gathering)}});
    // Over HSDP's copies all wait for each other as well.
    if (layout.data.sharding == Sharding::hsdp) details.stages.back().reduction.copies = {lasting({})};
  }
  UnfoldedGraph all = unfold(folded, costs, layout, details);
  all.graph.rank_order.resize(static_cast<std::size_t>(all.graph.ranks));
  for (const std::vector<NodeId>& order : folded.rank_order) {
    for (const NodeId node : order) {
      for (const NodeCopy& copy : all.copies[node]) {
        all.graph.rank_order[static_cast<std::size_t>(copy.rank)].push_back(copy.last);
      }
    }
  }
  return std::move(all.graph);
}

}  // namespace plumb
