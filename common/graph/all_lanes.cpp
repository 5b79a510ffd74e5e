#include "common/graph/all_lanes.hpp"

#include <utility>

#include "common/graph/unfold.hpp"

namespace plumb {

ScheduleGraph in_all_lanes(const ScheduleGraph& folded, const PipelineCosts& costs, const Layout& layout) {
  UnfoldingDetails details{.stages = {}, .collectives = CollectiveTable(Machine{}, GroupPlacement{})};
  for (const ComputeCost& cost : costs.stages) {
    CollectivePlan whole{.count = 1};
    whole.phases.front().time = cost.gradient_reduction;
    details.stages.push_back({.reduction = {whole}});
  }
  return std::move(unfold(folded, costs, layout, details).graph);
}

}  // namespace plumb
