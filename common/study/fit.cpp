#include "common/study/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/error.hpp"
#include "common/cluster/machine_numbers.hpp"
#include "common/study/fit_problem.hpp"

namespace plumb {
namespace {

// Derivatives for the covariance: wider than a fit's, of the true residuals.
constexpr double wide_difference = 0.05;

class Refitter {
 public:
  Refitter(const std::vector<PublishedTable>& tables, std::vector<Unknown> unknowns, const FitOptions& options)
      : tables_(tables), unknowns_(std::move(unknowns)), options_(options) {}

  [[nodiscard]] FitProblem problem(std::vector<PublishedTable> tables, std::vector<Unknown> unknowns) {
    return {std::move(tables), std::move(unknowns), std::max(1, options_.threads), [this] {
              ++looks_;
              if (options_.progress) options_.progress(what_, looks_);
            }};
  }

  // Schedules that are made for times change in jumps, so they are held while the numbers move, and made anew until
  // that finds nothing better.
  [[nodiscard]] static Minimum minimum(const FitProblem& problem, const std::vector<double>& start) {
    const Residuals residuals = [&](const std::vector<double>& at) { return problem.residuals(at); };
    Minimum best{.at = start, .sum = sum_of_squares(residuals(start))};
    constexpr int rounds = 4;
    constexpr double first = 0.01;  // of the search that follows where kinks stop the derivatives
    constexpr double last = 0.0025;
    for (int round = 0; round < rounds; ++round) {
      const FitProblem held = problem.with_schedules_of(best.at);
      const Residuals smooth = [&](const std::vector<double>& at) { return held.residuals(at); };
      Minimum found = pattern_search(smooth, gauss_newton(smooth, best.at), first, last);
      found.sum = sum_of_squares(residuals(found.at));
      if (found.sum >= best.sum * (1 - 1e-3)) break;
      best = std::move(found);
    }
    return best;
  }

  [[nodiscard]] MachineRefit fit() {
    what_ = "fitting all tables";
    if (spare_rows() < 0) {
      throw InputError("fit",
                       fmt::format("{} numbers without a prior are free, and only {} rows are measured ({})",
                                   measured_rows() - spare_rows(), measured_rows(), names()),
                       "free fewer numbers, give one a prior, or fit on more tables");
    }
    const FitProblem all = problem(tables_, unknowns_);
    const std::vector<double> start = all.start();
    const Minimum best = minimum(all, start);
    require_in_range(best.at);
    MachineRefit result{.numbers = {},
                        .correlations = {},
                        .spare_rows = spare_rows(),
                        .chi_squared = best.sum,
                        .tables = errors_by_table(all, best.at),
                        .left_out = {}};
    const auto residuals = [&](const std::vector<double>& at) { return all.residuals(at); };
    const Matrix slopes = derivatives(residuals, best.at, wide_difference);
    const std::optional<Matrix> covariance = plumb::covariance(slopes);
    if (!covariance) throw InputError("fit", "the tables do not tell " + names() + " apart", "free fewer numbers");
    for (std::size_t i = 0; i < unknowns_.size(); ++i) {
      const int table = unknowns_[i].table;
      result.numbers.push_back({.number = unknowns_[i].number,
                                .table = table < 0 ? "" : tables_[static_cast<std::size_t>(table)].title,
                                .start = std::exp(start[i]),
                                .value = std::exp(best.at[i]),
                                .uncertainty = std::sqrt((*covariance)[i][i])});
    }
    result.correlations = *covariance;
    for (std::size_t i = 0; i < unknowns_.size(); ++i) {
      for (std::size_t j = 0; j < unknowns_.size(); ++j) {
        result.correlations[i][j] /= result.numbers[i].uncertainty * result.numbers[j].uncertainty;
      }
    }
    if (!options_.leave_one_out || tables_.size() < 2) return result;
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      result.left_out.push_back(without(static_cast<int>(table), start));
    }
    return result;
  }

 private:
  [[nodiscard]] std::string names() const {
    std::string text;
    for (const Unknown& unknown : unknowns_) text += (text.empty() ? "" : ", ") + unknown.number.name;
    return text;
  }

  [[nodiscard]] std::ptrdiff_t measured_rows() const {
    std::ptrdiff_t rows = 0;
    for (const PublishedTable& table : tables_) {
      rows += std::ranges::count_if(table.rows, [](const PublishedRow& row) { return row.measured.has_value(); });
    }
    return rows;
  }

  // A number with a prior needs no row.
  [[nodiscard]] int spare_rows() const {
    const auto unknown = std::ranges::count_if(unknowns_, [](const Unknown& each) { return each.number.prior == 0; });
    return static_cast<int>(measured_rows() - unknown);
  }

  // The logarithms are without bounds, so that a table that says what no such machine does is noticed here.
  void require_in_range(const std::vector<double>& logarithms) const {
    constexpr double rounding = 1e-9;
    for (std::size_t i = 0; i < unknowns_.size(); ++i) {
      const std::string& name = unknowns_[i].number.name;
      const NumberRange range = machine_number_range(name);
      const double value = std::exp(logarithms[i]);
      if (value >= range.least * (1 - rounding) && value <= range.most * (1 + rounding)) continue;
      const int table = unknowns_[i].table;
      const std::string of = table < 0 ? "" : " of " + tables_[static_cast<std::size_t>(table)].title;
      throw InputError("fit",
                       fmt::format("{}{} would be {:.4g}, but a machine's file takes {:g} to {:g}", name, of, value,
                                   range.least, range.most),
                       "look at what the tables give as measured, in which metric, and of which model, cluster and "
                       "training");
    }
  }

  static std::vector<TableErrors> errors_by_table(const FitProblem& problem, const std::vector<double>& at) {
    const std::vector<double> errors = problem.errors(at);
    std::vector<TableErrors> result;
    auto error = errors.begin();
    for (const PublishedTable& table : problem.tables_at(at)) {
      TableErrors sum{.table = table.title};
      const auto count =
          std::ranges::count_if(table.rows, [](const PublishedRow& row) { return row.measured.has_value(); });
      for (std::ptrdiff_t i = 0; i < count; ++i, ++error) {
        sum.mean += std::abs(*error) / static_cast<double>(count);
        sum.worst = std::max(sum.worst, std::abs(*error));
      }
      result.push_back(sum);
    }
    return result;
  }

  // From where the fit of all began: nothing of the table is in it.
  LeftOutTable without(int table, const std::vector<double>& all) {
    const PublishedTable& left = tables_[static_cast<std::size_t>(table)];
    what_ = "fitting without " + left.title;
    std::vector<PublishedTable> others = tables_;
    others.erase(others.begin() + table);
    std::vector<Unknown> shared;
    std::vector<double> start;
    for (std::size_t i = 0; i < unknowns_.size(); ++i) {
      if (unknowns_[i].table == table) continue;
      shared.push_back(unknowns_[i]);
      if (shared.back().table > table) --shared.back().table;
      start.push_back(all[i]);
    }
    const Minimum of_others = minimum(problem(others, shared), start);

    // The table's rows with the machine's numbers of the others, its own numbers from itself.
    std::vector<Unknown> machines;
    std::vector<Unknown> own;
    std::vector<double> machine_values;
    std::vector<double> own_start;
    std::vector<double> values = all;
    for (std::size_t i = 0, at = 0; i < unknowns_.size(); ++i) {
      if (unknowns_[i].table == table) {
        own.push_back({unknowns_[i].number, 0});
        own_start.push_back(all[i]);
        continue;
      }
      values[i] = of_others.at[at++];
      if (unknowns_[i].table >= 0) continue;
      machines.push_back(unknowns_[i]);
      machine_values.push_back(values[i]);
    }
    const FitProblem alone = problem(problem({left}, machines).tables_at(machine_values), own);
    const std::vector<double> own_values = own.empty() ? own_start : minimum(alone, own_start).at;
    for (std::size_t i = 0, at = 0; i < unknowns_.size(); ++i) {
      if (unknowns_[i].table == table) values[i] = own_values[at++];
    }
    for (double& value : values) value = std::exp(value);
    return {.errors = errors_by_table(alone, own_values).front(), .values = values};
  }

  const std::vector<PublishedTable>& tables_;
  std::vector<Unknown> unknowns_;
  const FitOptions& options_;
  std::string what_;
  int looks_ = 0;
};

void require_machine(const Machine& machine, const PublishedTable& table, const std::vector<FreeNumber>& free) {
  for (const PublishedRow& row : table.rows) {
    const Machine& of_row = row.scenario.cluster.machine;
    const std::string where = table.file.string() + ": row '" + row.name + "'";
    if (of_row.name != machine.name) {
      throw InputError(where, "is of machine '" + of_row.name + "', not of '" + machine.name + "'");
    }
    for (const std::string& name : machine_number_names()) {
      if (name.starts_with("outside.")) continue;  // a row may name its own network
      const bool is_free = std::ranges::any_of(free, [&](const FreeNumber& number) { return number.name == name; });
      if (is_free || machine_number(of_row, name) == machine_number(machine, name)) continue;
      throw InputError(where, "its machine has another " + name + " than the one that is refitted",
                       "rows name their machine in `cluster`: put the changed file there");
    }
  }
}

void require_shared(const PublishedTable& table, const FreeNumber& number) {
  const double first = machine_number(table.rows.front().scenario.cluster.machine, number.name);
  for (const PublishedRow& row : table.rows) {
    if (machine_number(row.scenario.cluster.machine, number.name) == first) continue;
    throw InputError(table.file.string() + ": row '" + row.name + "'",
                     "has another " + number.name + " than the first row, but the table frees one for all");
  }
}

}  // namespace

MachineRefit refit(const Machine& machine, const std::vector<FreeNumber>& free,
                   const std::vector<PublishedTable>& tables, const FitOptions& options) {
  if (tables.empty()) throw InputError("fit", "there are no tables to fit on");
  std::vector<Unknown> unknowns;
  for (const FreeNumber& number : free) unknowns.push_back({number, -1});
  std::vector<PublishedTable> at_machine = tables;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (!is_time(tables[i].metric)) {
      throw InputError(tables[i].file.string(), "measures no time, and what is fitted is how fast a machine is");
    }
    require_machine(machine, tables[i], free);
    for (const FreeNumber& number : tables[i].free) {
      require_shared(tables[i], number);
      unknowns.push_back({number, static_cast<int>(i)});
    }
    for (PublishedRow& row : at_machine[i].rows) {
      for (const FreeNumber& number : free) {
        set_machine_number(row.scenario.cluster.machine, number.name, machine_number(machine, number.name));
      }
    }
  }
  if (unknowns.empty()) throw InputError("fit", "nothing is free", "fit: {free: {matmul_efficiency: {}}}");
  for (const Unknown& unknown : unknowns) {
    if (machine_number(machine, unknown.number.name) > 0) continue;
    throw InputError("fit", unknown.number.name + " is 0: its logarithm is fitted, so it needs a value to start from");
  }
  return Refitter(at_machine, std::move(unknowns), options).fit();
}

}  // namespace plumb
