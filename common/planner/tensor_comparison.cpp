#include "common/planner/tensor_comparison.hpp"

#include <algorithm>
#include <set>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/layout_space.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/traffic.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb {
namespace {

// Barriers of a vocabulary, whole first.
std::vector<int> vocabularies_of(const Scenario& scenario) {
  std::set<int> barriers{0};
  for (const Layout& layout : layouts_of(scenario)) barriers.insert(layout.vocabulary_barriers);
  return {barriers.begin(), barriers.end()};
}

// But for its kind and the vocabulary, which are compared.
void require_settled(const Scenario& scenario) {
  const auto differs = [&](Layout layout) {
    if (layout.tensor.degree != scenario.layout.tensor.degree) return true;
    layout.tensor = scenario.layout.tensor;
    layout.vocabulary_barriers = scenario.layout.vocabulary_barriers;
    return layout != scenario.layout;
  };
  if (std::ranges::any_of(scenario.layouts, differs) || scenario.stage_data_pipelines) {
    throw InputError("layout", "is open, and tensor layouts are compared on one mesh",
                     "one degree each for pipeline, tensor and data, or plumb plan, which searches");
  }
  if (scenario.layout.tensor.degree > 1 || vocabularies_of(scenario).size() > 1) return;
  throw InputError("layout", "a tensor degree of 1 is the same in every tensor layout",
                   "tensor: {degree: 4}, or another product of grids; or vocabulary: auto");
}

double over_several_machines(const BlockProgram& program, const TensorGroups& groups) {
  double bytes = 0;
  for (const ProgramStep& step : program.steps) {
    if (step.kind != StepKind::move) continue;
    const GroupPlacement& ranks = groups.over(step.move.over);
    bytes += ranks.per_machine < ranks.ranks ? step.move.received : 0;
  }
  return bytes;
}

void add_mean_of_layers(ComparedTensor& row) {
  const Scenario scenario = scenario_of(row.best.plan);
  const TensorGroups groups = tensor_groups(scenario.layout, scenario.cluster);
  const std::size_t count = scenario.model.layers.size();
  for (std::size_t layer = 1; layer <= count; ++layer) {
    const BlockProgram program = program_of_block(scenario, layer);
    const ProgramTraffic traffic = program_traffic(program);
    for (const auto part : {&ProgramTraffic::forward, &ProgramTraffic::input_gradient, &ProgramTraffic::weight_gradient,
                            &ProgramTraffic::once}) {
      row.layer.*part += traffic.*part / static_cast<double>(count);
    }
    row.across += over_several_machines(program, groups) / static_cast<double>(count);
  }
}

// The scenario's own choices alone; a uniform split that it does not name stands in no row.
Candidate best_of(const Scenario& scenario, const Evaluator& evaluator) {
  require_divisible(scenario.model, scenario.layout);
  require_divides_sequence(scenario.layout.tensor, scenario.training.sequence);
  const PlanningResult result = plan_scenario(scenario, evaluator);
  return *std::ranges::find_if(result.candidates, &Candidate::own);
}

double joined_bytes(const Plan& plan, const StepTimeline& step) {
  double bytes = 0;
  for (const Event& event : step.events) {
    if (joins_parts(event.action.kind)) bytes += received_of_joined(event, plan.schedule);
  }
  return bytes / plan.schedule.ranks / plan.schedule.microbatches;
}

ComparedTensor compared(Scenario scenario, const TensorLayout& tensor, int barriers, const Evaluator& evaluator) {
  scenario.layout.tensor = tensor;
  scenario.layout.vocabulary_barriers = barriers;
  scenario.layouts = {scenario.layout};
  ComparedTensor row{.tensor = tensor, .vocabulary_barriers = barriers};
  try {
    row.best = best_of(scenario, evaluator);
  } catch (const InputError& error) {
    row.best = {.reason = error.problem(), .hint = error.hint(), .where = error.where()};
  }
  if (!row.best.built) return row;
  add_mean_of_layers(row);
  const Timeline timeline = evaluator(row.best.plan);
  row.joined = joined_bytes(row.best.plan, median_step(timeline));
  const CommunicationTimes times = communication_times(timeline, median_step(timeline));
  row.tensor_time = times.at(static_cast<std::size_t>(CommunicationUse::tensor_within));
  for (const CommunicationTime& time : times) row.exposed += exposed(time);
  return row;
}

}  // namespace

std::vector<TensorLayout> tensor_layouts_of(int degree) {
  LayoutSpace space;
  space.kinds = {all_tensor_kinds.begin(), all_tensor_kinds.end()};
  space.depths.reset();
  space.sequence_parallel = {false, true};
  space.asynchronous = {false, true};
  space.reshard_after_forward = {false, true};
  std::vector<TensorLayout> all = tensor_layouts_of(space, degree);
  std::erase_if(all, [](const TensorLayout& tensor) { return is_grid(tensor) && !find_grid(tensor); });
  return all;
}

std::vector<ComparedTensor> compare_tensor_layouts(const Scenario& scenario, const Evaluator& evaluator) {
  require_settled(scenario);
  const std::vector<int> vocabularies = vocabularies_of(scenario);
  std::vector<ComparedTensor> rows;
  for (const TensorLayout& tensor : tensor_layouts_of(scenario.layout.tensor.degree)) {
    for (const int barriers : vocabularies) rows.push_back(compared(scenario, tensor, barriers, evaluator));
  }
  std::ranges::stable_sort(
      rows, [](const ComparedTensor& a, const ComparedTensor& b) { return stands_before(a.best, b.best); });
  return rows;
}

}  // namespace plumb
