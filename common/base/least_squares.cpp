#include "common/base/least_squares.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace plumb {
namespace {

Matrix normal_matrix(const Matrix& derivatives) {
  const std::size_t unknowns = derivatives.empty() ? 0 : derivatives.front().size();
  Matrix sum(unknowns, std::vector<double>(unknowns, 0));
  for (const std::vector<double>& row : derivatives) {
    for (std::size_t i = 0; i < unknowns; ++i) {
      for (std::size_t j = 0; j < unknowns; ++j) sum[i][j] += row[i] * row[j];
    }
  }
  return sum;
}

// Gauss's and Jordan's elimination of a symmetric positive matrix, scaled to a unit diagonal; none if a pivot is lost
// in rounding.
std::optional<Matrix> inverse(Matrix matrix) {
  const std::size_t n = matrix.size();
  std::vector<double> scale(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!(matrix[i][i] > 0) || !std::isfinite(matrix[i][i])) return std::nullopt;
    scale[i] = 1 / std::sqrt(matrix[i][i]);
  }
  Matrix result(n, std::vector<double>(n, 0));
  for (std::size_t i = 0; i < n; ++i) {
    result[i][i] = 1;
    for (std::size_t j = 0; j < n; ++j) matrix[i][j] *= scale[i] * scale[j];
  }
  constexpr double lost = 1e-10;
  for (std::size_t pivot = 0; pivot < n; ++pivot) {
    if (matrix[pivot][pivot] < lost) return std::nullopt;
    const double by = 1 / matrix[pivot][pivot];
    for (std::size_t j = 0; j < n; ++j) {
      matrix[pivot][j] *= by;
      result[pivot][j] *= by;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (i == pivot) continue;
      const double times = matrix[i][pivot];
      for (std::size_t j = 0; j < n; ++j) {
        matrix[i][j] -= times * matrix[pivot][j];
        result[i][j] -= times * result[pivot][j];
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) result[i][j] *= scale[i] * scale[j];
  }
  return result;
}

std::vector<double> gradient(const Matrix& derivatives, const std::vector<double>& residuals) {
  std::vector<double> sum(derivatives.empty() ? 0 : derivatives.front().size(), 0);
  for (std::size_t row = 0; row < residuals.size(); ++row) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += derivatives[row][i] * residuals[row];
  }
  return sum;
}

// Where a step with this damping leads; none if it has no direction.
std::optional<std::vector<double>> stepped(const std::vector<double>& from, const Matrix& normal,
                                           const std::vector<double>& slope, double damping, double longest) {
  Matrix damped = normal;
  constexpr double least = 1e-12;  // an unknown that nothing depends on stays
  for (std::size_t i = 0; i < damped.size(); ++i) damped[i][i] += damping * damped[i][i] + least;
  const std::optional<Matrix> inverted = inverse(damped);
  if (!inverted) return std::nullopt;
  std::vector<double> to = from;
  for (std::size_t i = 0; i < to.size(); ++i) {
    double move = 0;
    for (std::size_t j = 0; j < to.size(); ++j) move -= (*inverted)[i][j] * slope[j];
    to[i] += std::clamp(move, -longest, longest);
  }
  return to;
}

double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

double sum_of_squares(const std::vector<double>& residuals) {
  double sum = 0;
  for (const double residual : residuals) sum += residual * residual;
  return sum;
}

Matrix derivatives(const Residuals& residuals, const std::vector<double>& at, double difference) {
  Matrix result;
  for (std::size_t i = 0; i < at.size(); ++i) {
    std::vector<double> above = at;
    std::vector<double> below = at;
    above[i] += difference;
    below[i] -= difference;
    const std::vector<double> high = residuals(above);
    const std::vector<double> low = residuals(below);
    result.resize(high.size(), std::vector<double>(at.size(), 0));
    for (std::size_t row = 0; row < high.size(); ++row) result[row][i] = (high[row] - low[row]) / (2 * difference);
  }
  return result;
}

Minimum gauss_newton(const Residuals& residuals, std::vector<double> start, const GaussNewton& how) {
  std::vector<double> current = residuals(start);
  Minimum best{.at = std::move(start), .sum = sum_of_squares(current)};
  for (int step = 0; step < how.steps; ++step) {
    const Matrix slopes = derivatives(residuals, best.at, how.difference);
    const Matrix normal = normal_matrix(slopes);
    const std::vector<double> slope = gradient(slopes, current);
    bool moved = false;
    double distance = 0;
    for (const double damping : {0.0, 0.1, 1.0, 10.0}) {
      const auto to = stepped(best.at, normal, slope, damping, how.longest);
      if (!to) continue;
      std::vector<double> there = residuals(*to);
      if (const double sum = sum_of_squares(there); sum < best.sum) {
        distance = furthest(best.at, *to);
        best = {.at = *to, .sum = sum};
        current = std::move(there);
        moved = true;
        break;
      }
    }
    if (!moved || distance < how.settled) break;
  }
  return best;
}

Minimum pattern_search(const Residuals& residuals, Minimum from, double first, double last) {
  const auto improves = [&](std::vector<double> there) {
    const double sum = sum_of_squares(residuals(there));
    if (sum >= from.sum) return false;
    from = {.at = std::move(there), .sum = sum};
    return true;
  };
  for (double step = first; step >= last;) {
    const std::vector<double> before = from.at;
    for (std::size_t i = 0; i < before.size(); ++i) {
      for (const double by : {step, -step}) {
        std::vector<double> there = from.at;
        there[i] += by;
        if (improves(std::move(there))) break;
      }
    }
    if (from.at == before) {
      step /= 2;
      continue;
    }
    bool onward = true;
    while (onward) {  // along a valley, twice as far each time
      std::vector<double> there = before;
      for (std::size_t i = 0; i < there.size(); ++i) there[i] += 2 * (from.at[i] - before[i]);
      onward = improves(std::move(there));
    }
  }
  return from;
}

std::optional<Matrix> covariance(const Matrix& derivatives) { return inverse(normal_matrix(derivatives)); }

}  // namespace plumb
