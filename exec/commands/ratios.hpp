// How much longer one plan's steps take than another's, step by step beside each other.
#pragma once

#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

// Of time[i] / base[i]: the median and the quartiles (the middle half), linear between neighbours.
struct RatioSpread {
  double median = 0;
  double low = 0;
  double high = 0;
  bool operator==(const RatioSpread&) const = default;
};

// Both have the same number of steps, at least one.
[[nodiscard]] RatioSpread paired_ratios(const std::vector<Seconds>& base, const std::vector<Seconds>& times);

}  // namespace plumb::exec
