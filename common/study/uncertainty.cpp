#include "common/study/uncertainty.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/near_ties.hpp"
#include "common/base/quantile.hpp"
#include "common/base/random.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/study/step_model.hpp"

namespace plumb {
namespace {

constexpr double lowest = 0.05;
constexpr double highest = 0.95;

double normal_of(const Machine& machine, const MachineNumber& number, const DrawOptions& options, int draw) {
  return normal_draw(options.seed, machine.name + " " + number.name, static_cast<std::uint64_t>(draw));
}

Machine drawn(const Machine& machine, const DrawOptions& options, int draw) {
  Machine result = machine;
  for (const MachineNumber& number : numbers_of(machine, /*offloads=*/true)) {
    const double spread = number.uncertainty(machine);
    if (spread == 0) continue;
    result =
        with_factor(std::move(result), number, lognormal_factor(normal_of(machine, number, options, draw), spread));
  }
  return result;
}

void sort_by_step(std::vector<Contribution>& contributions) {
  std::ranges::sort(contributions, {},
                    [](const Contribution& entry) { return std::pair(-without_last_bits(entry.step), entry.number); });
}

void add_contributions(StepUncertainty& result, const Plan& plan, const StepModel& model, Seconds nominal) {
  constexpr double worth_naming = 0.05;
  double variance = 0;
  for (const MachineNumber& number : numbers_of(plan.cluster.machine, offloads(plan.training.offload))) {
    Contribution contribution{.number = number.name,
                              .uncertainty = number.uncertainty(plan.cluster.machine),
                              .slope = model.elasticities(number, nominal).both};
    const bool exact = contribution.uncertainty == 0;
    contribution.step = std::abs(contribution.slope) * (exact ? 1 : contribution.uncertainty);
    if (!exact) {
      variance += contribution.step * contribution.step;
      result.contributions.push_back(contribution);
    } else if (contribution.step >= worth_naming) {
      result.taken_as_exact.push_back(contribution);
    }
  }
  // Of the network between machines a scenario gives no uncertainties.
  for (const ClusterNumber& number : numbers_of(plan.cluster)) {
    Contribution contribution{.number = number.name, .slope = model.elasticities(number, nominal).both};
    contribution.step = std::abs(contribution.slope);
    if (contribution.step >= worth_naming) result.taken_as_exact.push_back(contribution);
  }
  result.deviation = std::sqrt(variance);
  sort_by_step(result.contributions);
  sort_by_step(result.taken_as_exact);
  for (Contribution& contribution : result.taken_as_exact) contribution.step = 0;
}

// Of two samples of equal length; 0 where one of them does not vary.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto count = static_cast<double>(a.size());
  double mean_a = 0;
  double mean_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    mean_a += a[i] / count;
    mean_b += b[i] / count;
  }
  double both = 0;
  double square_a = 0;
  double square_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a);
    square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  const bool varies = square_a > 0 && square_b > 1e-24;
  return varies ? both / std::sqrt(square_a * square_b) : 0;
}

// The normal draws of every number that is open on either machine, by the name it is reported under.
std::map<std::string, std::vector<double>> draws_of_numbers(const Plan& first, const Plan& second,
                                                            const DrawOptions& options) {
  std::map<std::string, std::vector<double>> draws;
  const bool same = first.cluster.machine.name == second.cluster.machine.name;
  for (const Plan* plan : {&first, &second}) {
    const Machine& machine = plan->cluster.machine;
    for (const MachineNumber& number : numbers_of(machine, offloads(plan->training.offload))) {
      if (number.uncertainty(machine) == 0) continue;
      const std::string name = same ? number.name : number.name + " of " + machine.name;
      std::vector<double>& values = draws[name];
      if (!values.empty()) continue;
      for (int draw = 0; draw < options.draws; ++draw) values.push_back(normal_of(machine, number, options, draw));
    }
  }
  return draws;
}

}  // namespace

StepUncertainty step_uncertainty(const Plan& plan, const DrawOptions& options,
                                 const std::function<void(int, int)>& progress) {
  require_predicted_costs(plan, "uncertainty");
  const StepModel model(plan);
  const Seconds nominal = model.step(plan.cluster.machine);
  StepUncertainty result{.options = options};
  add_contributions(result, plan, model, nominal);
  if (nominal.value == 0 || result.contributions.empty()) return result;
  std::vector<double> ratios;
  for (int draw = 0; draw < options.draws; ++draw) {
    ratios.push_back(model.step(drawn(plan.cluster.machine, options, draw)) / nominal);
    if (progress) progress(draw + 1, options.draws);
  }
  result.low = quantile(ratios, lowest);
  result.median = quantile(ratios, 0.5);
  result.high = quantile(ratios, highest);
  return result;
}

Ranking rank_plans(const Plan& first, const Plan& second, const DrawOptions& options,
                   const std::function<void(int, int)>& progress) {
  require_predicted_costs(first, "the first plan");
  require_predicted_costs(second, "the second plan");
  const StepModel model_of_first(first);
  const StepModel model_of_second(second);
  Ranking ranking{.options = options,
                  .first = model_of_first.step(first.cluster.machine),
                  .second = model_of_second.step(second.cluster.machine),
                  .same_machine = first.cluster.machine.name == second.cluster.machine.name};
  ranking.faster = 1 - ranking.first / ranking.second;
  std::vector<double> faster;
  std::vector<double> ratios;
  for (int draw = 0; draw < options.draws; ++draw) {
    const Seconds a = model_of_first.step(drawn(first.cluster.machine, options, draw));
    const Seconds b = model_of_second.step(drawn(second.cluster.machine, options, draw));
    ranking.first_wins += (a < b ? 1 : a == b ? 0.5 : 0) / options.draws;
    faster.push_back(1 - a / b);
    ratios.push_back(std::log(b / a));
    if (progress) progress(draw + 1, options.draws);
  }
  ranking.faster_low = quantile(faster, lowest);
  ranking.faster_high = quantile(faster, highest);
  for (const auto& [name, values] : draws_of_numbers(first, second, options)) {
    const double found = correlation(values, ratios);
    if (found != 0) ranking.decisive.push_back({.number = name, .correlation = found});
  }
  std::ranges::sort(ranking.decisive, {}, [](const Decisive& entry) {
    return std::pair(-without_last_bits(entry.correlation), entry.number);
  });
  return ranking;
}

}  // namespace plumb
