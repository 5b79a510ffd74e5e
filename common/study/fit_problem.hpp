// The residuals of a fit: published rows at given numbers of their machine.
#pragma once

#include <functional>
#include <vector>

#include "common/base/least_squares.hpp"
#include "common/cluster/machine_fit.hpp"
#include "common/study/published.hpp"

namespace plumb {

struct Unknown {
  FreeNumber number = {};
  int table = -1;  // whose own it is; −1: of all
  bool operator==(const Unknown&) const = default;
};

class FitProblem {
 public:
  // `look` is called before each prediction of all rows.
  FitProblem(std::vector<PublishedTable> tables, std::vector<Unknown> unknowns, int threads,
             std::function<void()> look);

  // As the rows have them.
  [[nodiscard]] std::vector<double> start() const;  // logarithms

  // Of all rows, table after table: predicted / measured − 1.
  [[nodiscard]] std::vector<double> errors(const std::vector<double>& logarithms) const;
  // Errors in units of their uncertainty, then priors.
  [[nodiscard]] std::vector<double> residuals(const std::vector<double>& logarithms) const;

  // The rows with these numbers.
  [[nodiscard]] std::vector<PublishedTable> tables_at(const std::vector<double>& logarithms) const;

  // This problem with each schedule that is made for times as it is made for these numbers: faster, and smooth.
  [[nodiscard]] FitProblem with_schedules_of(const std::vector<double>& logarithms) const;

 private:
  std::vector<PublishedTable> tables_;
  std::vector<Unknown> unknowns_;
  int threads_;
  std::function<void()> look_;
};

}  // namespace plumb
