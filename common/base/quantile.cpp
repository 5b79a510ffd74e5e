#include "common/base/quantile.hpp"

#include <algorithm>
#include <utility>

namespace plumb {

double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double weight = place - static_cast<double>(below);
  return values[below] * (1 - weight) + values[above] * weight;
}

Seconds median(const std::vector<Seconds>& values) {
  std::vector<double> numbers;
  for (const Seconds value : values) numbers.push_back(value.value);
  return {quantile(std::move(numbers), 0.5)};
}

}  // namespace plumb
