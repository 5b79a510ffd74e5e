// Least squares of few unknowns, for residuals that are dear and have kinks.
#pragma once

#include <functional>
#include <optional>
#include <vector>

namespace plumb {

// As many residuals at every place.
using Residuals = std::function<std::vector<double>(const std::vector<double>&)>;
using Matrix = std::vector<std::vector<double>>;

struct Minimum {
  std::vector<double> at = {};
  double sum = 0;  // of the residuals' squares
};

[[nodiscard]] double sum_of_squares(const std::vector<double>& residuals);

// One row per residual, one column per unknown: by differences of ± `difference`, wide ones, so that kinks average out.
[[nodiscard]] Matrix derivatives(const Residuals& residuals, const std::vector<double>& at, double difference);

struct GaussNewton {
  int steps = 12;
  double difference = 0.04;  // of derivatives
  double longest = 0.5;      // that a step may move an unknown
  double settled = 2e-3;     // a step that moves none so far is the last
};
// Levenberg's and Marquardt's damping: a step that does not lower the sum is shortened.
[[nodiscard]] Minimum gauss_newton(const Residuals& residuals, std::vector<double> start, const GaussNewton& how = {});

// Moves one unknown at a time by ± `first`, then by half of it, …, by no less than `last`, wherever that lowers the
// sum.
[[nodiscard]] Minimum pattern_search(const Residuals& residuals, Minimum from, double first, double last);

// (JᵀJ)⁻¹: the covariance of the unknowns where each residual has a standard deviation of 1. None if the residuals do
// not tell the unknowns apart.
[[nodiscard]] std::optional<Matrix> covariance(const Matrix& derivatives);

}  // namespace plumb
