#include "exec/commands/ratios.hpp"

#include <algorithm>

namespace plumb::exec {
namespace {

double quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

RatioSpread paired_ratios(const std::vector<Seconds>& base, const std::vector<Seconds>& times) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < base.size(); ++i) ratios.push_back(times[i] / base[i]);
  std::sort(ratios.begin(), ratios.end());
  return {.median = quantile(ratios, 0.5), .low = quantile(ratios, 0.25), .high = quantile(ratios, 0.75)};
}

}  // namespace plumb::exec
