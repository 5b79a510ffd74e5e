#include "common/planner/tensor_comparison.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb {
namespace {

void require_settled(const Scenario& scenario) {
  if (scenario.layouts.size() > 1 || scenario.stage_data_pipelines) {
    throw InputError("layout", "is open, and tensor layouts are compared on one mesh",
                     "one degree each for pipeline, tensor and data, or plumb plan, which searches");
  }
  if (scenario.layout.tensor.degree > 1) return;
  throw InputError("layout", "a tensor degree of 1 is the same in every tensor layout",
                   "tensor: {degree: 4}, or another product of grids");
}

ProgramTraffic mean_of_layers(const Plan& plan) {
  const Scenario scenario = scenario_of(plan);
  const std::size_t count = plan.model.layers.size();
  ProgramTraffic sum;
  for (std::size_t layer = 1; layer <= count; ++layer) {
    const ProgramTraffic traffic = program_traffic(program_of_block(scenario, layer));
    for (const auto part : {&ProgramTraffic::forward, &ProgramTraffic::input_gradient, &ProgramTraffic::weight_gradient,
                            &ProgramTraffic::once}) {
      sum.*part += traffic.*part / static_cast<double>(count);
    }
  }
  return sum;
}

// The scenario's own choices alone; a uniform split that it does not name stands in no row.
Candidate best_of(const Scenario& scenario, const Evaluator& evaluator) {
  require_divisible(scenario.model, scenario.layout);
  require_divides_sequence(scenario.layout.tensor, scenario.training.sequence);
  const PlanningResult result = plan_scenario(scenario, evaluator);
  return *std::ranges::find_if(result.candidates, &Candidate::own);
}

ComparedTensor compared(Scenario scenario, const TensorLayout& tensor, const Evaluator& evaluator) {
  scenario.layout.tensor = tensor;
  scenario.layouts = {scenario.layout};
  ComparedTensor row{.tensor = tensor};
  try {
    row.best = best_of(scenario, evaluator);
  } catch (const InputError& error) {
    row.best = {.reason = error.problem(), .hint = error.hint(), .where = error.where()};
  }
  if (!row.best.built) return row;
  row.layer = mean_of_layers(row.best.plan);
  const Timeline timeline = evaluator(row.best.plan);
  const CommunicationTimes times = communication_times(timeline, median_step(timeline));
  row.tensor_time = times.at(static_cast<std::size_t>(CommunicationUse::tensor_within));
  for (const CommunicationTime& time : times) row.exposed += exposed(time);
  return row;
}

}  // namespace

std::vector<TensorLayout> tensor_layouts_of(int degree) {
  std::vector<TensorLayout> all = {{.degree = degree}, {.degree = degree, .sequence_parallel = true}};
  const auto add = [&](const TensorLayout& tensor) {
    const auto grid = find_grid(tensor);
    if (grid && grid->row > 1) all.push_back(tensor);
  };
  add({.degree = degree, .kind = TensorKind::two_d});
  for (int depth = 2; depth <= degree / 4; ++depth) {
    add({.degree = degree, .kind = TensorKind::two_and_half_d, .depth = depth});
  }
  add({.degree = degree, .kind = TensorKind::three_d});
  return all;
}

std::vector<ComparedTensor> compare_tensor_layouts(const Scenario& scenario, const Evaluator& evaluator) {
  require_settled(scenario);
  std::vector<ComparedTensor> rows;
  for (const TensorLayout& tensor : tensor_layouts_of(scenario.layout.tensor.degree)) {
    rows.push_back(compared(scenario, tensor, evaluator));
  }
  std::ranges::stable_sort(
      rows, [](const ComparedTensor& a, const ComparedTensor& b) { return stands_before(a.best, b.best); });
  return rows;
}

}  // namespace plumb
