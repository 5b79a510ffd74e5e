// Refits a machine's free numbers from what was published about it.
//
// Least squares over the logarithms of the numbers. A row's residual is its relative error over 2%; a table counts as
// four such rows, however many it has, because its rows share their errors; a number with a prior adds
// ln(number / prior) / ln(factor). So the sum of squares is a χ², and the inverse of JᵀJ the covariance.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/least_squares.hpp"
#include "common/cluster/machine_fit.hpp"
#include "common/study/published.hpp"

namespace plumb {

inline constexpr double row_uncertainty = 0.02;  // of a measured row, by what repeated runs differ
inline constexpr double rows_of_table = 4;       // that a table counts as

struct FittedNumber {
  FreeNumber number = {};
  std::string table = {};  // whose own it is; empty: the machine's
  double start = 0;        // as it stood in the file, in the unit of its type
  double value = 0;
  double uncertainty = 0;  // one standard deviation of its logarithm: about a fraction
};

struct TableErrors {
  std::string table = {};
  double mean = 0;  // of the errors' absolute values, fractions
  double worst = 0;
};

// A table that the fit did not see: the machine's numbers come from the other tables, the table's own from itself.
struct LeftOutTable {
  TableErrors errors = {};
  std::vector<double> values = {};  // of all numbers
};

struct MachineRefit {
  std::vector<FittedNumber> numbers = {};  // the machine's, then each table's own
  Matrix correlations = {};
  int spare_rows = 0;  // measured ones beyond the numbers without a prior; 0: nothing is left to check the fit by
  double chi_squared = 0;
  std::vector<TableErrors> tables = {};
  std::vector<LeftOutTable> left_out = {};  // one per table; none for a single table
};

struct FitOptions {
  int threads = 1;  // the result does not depend on it
  bool leave_one_out = true;
  // After each look at all rows: what is being fitted, and how often so far.
  std::function<void(const std::string& what, int looks)> progress = {};
};

// Throws InputError for a row of another machine, for a table's own number that its rows do not share, for numbers that
// the tables do not determine (naming one) or that are more than the rows, for what cannot be planned, and for a fitted
// value that a machine's file would not take.
[[nodiscard]] MachineRefit refit(const Machine& machine, const std::vector<FreeNumber>& free,
                                 const std::vector<PublishedTable>& tables, const FitOptions& options);

}  // namespace plumb
