#include "exec/check/error_ratios.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumb::exec {
namespace {

constexpr double least_in_mean = 0.25;

double distance(std::span<const double> a, std::span<const double> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

double norm(std::span<const double> a) {
  double squares = 0;
  for (const double value : a) squares += value * value;
  return std::sqrt(squares);
}

void take_larger(ErrorRatios::Largest& largest, const std::string& tensor, double ratio) {
  if (largest.tensor.empty() || ratio > largest.ratio) largest = {tensor, ratio};
}

}  // namespace

ErrorRatio error_ratio(std::span<const double> g, std::span<const double> g1, std::span<const double> g64,
                       double epsilon) {
  const double error = distance(g, g64);
  if (error == 0) return {};
  const double size = norm(g64);
  const double ratio = error / std::max(distance(g1, g64), 8 * epsilon * size);
  return {.ratio = std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity(),
          .half_right = error <= std::sqrt(epsilon) * size};
}

void ErrorRatios::add(const std::string& tensor, const ErrorRatio& of) {
  logs_ += std::log(std::max(of.ratio, least_in_mean));
  ++count_;
  take_larger(worst_, tensor, of.ratio);
  if (!of.half_right) take_larger(wrong_, tensor, of.ratio);
}

double ErrorRatios::mean() const { return count_ == 0 ? 0 : std::min(std::exp(logs_ / count_), worst_.ratio); }

std::string ErrorRatios::problem(bool divided) const {
  if (divided && !(mean() <= most_error_ratio)) {
    return fmt::format(
        "the error ratio of all gradients is {:.4g} in the mean, expected at most {}; the largest is {:.4g}, of {}",
        mean(), most_error_ratio, worst_.ratio, worst_.tensor);
  }
  const Largest& largest = divided ? wrong_ : worst_;
  const double most = largest_error_ratio(divided);
  if (largest.ratio <= most) return "";
  return fmt::format("the error ratio of {} is {:.4g}, expected at most {}{}", largest.tensor, largest.ratio, most,
                     divided ? ", or half of its digits" : "");
}

}  // namespace plumb::exec
