#include "exec/commands/ratios.hpp"

#include "common/base/quantile.hpp"

namespace plumb::exec {

RatioSpread paired_ratios(const std::vector<Seconds>& base, const std::vector<Seconds>& times) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < base.size(); ++i) ratios.push_back(times[i] / base[i]);
  return {.median = quantile(ratios, 0.5), .low = quantile(ratios, 0.25), .high = quantile(ratios, 0.75)};
}

}  // namespace plumb::exec
