#include "common/study/fit_problem.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/parallel.hpp"
#include "common/cluster/machine_numbers.hpp"
#include "common/planner/make_plan.hpp"
#include "common/study/fit.hpp"

namespace plumb {
namespace {

struct RowPlace {
  std::size_t table = 0;
  std::size_t row = 0;
};

std::vector<RowPlace> measured_rows(const std::vector<PublishedTable>& tables) {
  std::vector<RowPlace> places;
  for (std::size_t table = 0; table < tables.size(); ++table) {
    for (std::size_t row = 0; row < tables[table].rows.size(); ++row) {
      if (tables[table].rows[row].measured) places.push_back({table, row});
    }
  }
  return places;
}

ScheduleChoice as_given(Schedule schedule, ScheduleChoice choice) {
  for (std::vector<Action>& list : schedule.actions) {  // the scenario says itself what is recomputed
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::recompute; });
  }
  choice.given = std::move(schedule);
  return choice;
}

}  // namespace

FitProblem::FitProblem(std::vector<PublishedTable> tables, std::vector<Unknown> unknowns, int threads,
                       std::function<void()> look)
    : tables_(std::move(tables)), unknowns_(std::move(unknowns)), threads_(threads), look_(std::move(look)) {}

std::vector<double> FitProblem::start() const {
  std::vector<double> logarithms;
  for (const Unknown& unknown : unknowns_) {
    const PublishedTable& table = tables_[static_cast<std::size_t>(std::max(0, unknown.table))];
    const Machine& machine = table.rows.front().scenario.cluster.machine;
    logarithms.push_back(std::log(machine_number(machine, unknown.number.name)));
  }
  return logarithms;
}

std::vector<PublishedTable> FitProblem::tables_at(const std::vector<double>& logarithms) const {
  std::vector<PublishedTable> tables = tables_;
  for (std::size_t i = 0; i < unknowns_.size(); ++i) {
    for (std::size_t table = 0; table < tables.size(); ++table) {
      if (unknowns_[i].table >= 0 && static_cast<std::size_t>(unknowns_[i].table) != table) continue;
      for (PublishedRow& row : tables[table].rows) {
        set_machine_number(row.scenario.cluster.machine, unknowns_[i].number.name, std::exp(logarithms[i]));
      }
    }
  }
  return tables;
}

std::vector<double> FitProblem::errors(const std::vector<double>& logarithms) const {
  if (look_) look_();
  const std::vector<PublishedTable> tables = tables_at(logarithms);
  const std::vector<RowPlace> places = measured_rows(tables);
  std::vector<double> errors(places.size());
  in_parallel(threads_, std::ssize(places), 1, [&](int, std::int64_t item) {
    const RowPlace& place = places[static_cast<std::size_t>(item)];
    const PublishedTable& table = tables[place.table];
    errors[static_cast<std::size_t>(item)] = predict_published(table, table.rows[place.row], predict_by_path).error;
  });
  return errors;
}

std::vector<double> FitProblem::residuals(const std::vector<double>& logarithms) const {
  std::vector<double> residuals = errors(logarithms);
  const std::vector<RowPlace> places = measured_rows(tables_);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto rows = static_cast<double>(
        std::ranges::count(places, places[i].table, [](const RowPlace& place) { return place.table; }));
    residuals[i] /= row_uncertainty * std::sqrt(rows / rows_of_table);
  }
  for (std::size_t i = 0; i < unknowns_.size(); ++i) {
    const FreeNumber& number = unknowns_[i].number;
    if (number.prior > 0) residuals.push_back((logarithms[i] - std::log(number.prior)) / std::log(number.factor));
  }
  return residuals;
}

FitProblem FitProblem::with_schedules_of(const std::vector<double>& logarithms) const {
  FitProblem result = *this;
  const std::vector<PublishedTable> tables = tables_at(logarithms);
  const std::vector<RowPlace> places = measured_rows(tables);
  in_parallel(threads_, std::ssize(places), 1, [&](int, std::int64_t item) {
    const RowPlace& place = places[static_cast<std::size_t>(item)];
    const Scenario& scenario = tables[place.table].rows[place.row].scenario;
    const ScheduleChoice& choice = scenario.schedules.front();
    if (!is_made_for_times(choice)) return;
    const Plan plan = make_plan(scenario, only_choice(scenario));
    result.tables_[place.table].rows[place.row].scenario.schedules.front() = as_given(plan.schedule, choice);
  });
  return result;
}

}  // namespace plumb
