// Medians and other quantiles of samples.
#pragma once

#include <vector>

#include "common/base/units.hpp"

namespace plumb {

// By linear interpolation between the sorted values (0: smallest, 0.5: median, 1: largest); not of an empty list.
[[nodiscard]] double quantile(std::vector<double> values, double fraction);

[[nodiscard]] Seconds median(const std::vector<Seconds>& values);

}  // namespace plumb
