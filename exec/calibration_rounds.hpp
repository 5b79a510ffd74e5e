// Which rounds of a calibration count, and what they say: medians over undisturbed rounds.
#pragma once

#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

struct BlockSample {
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
};

struct CalibrationRound {
  std::vector<BlockSample> samples;  // per block, in the same order in every round
};

[[nodiscard]] Seconds total(const CalibrationRound& round);

// Rounds whose total is within a quarter of the (lower) median of all totals, in their order: at least one of them.
[[nodiscard]] std::vector<CalibrationRound> undisturbed(const std::vector<CalibrationRound>& rounds);

// By linear interpolation between the sorted values (0: smallest, 0.5: median, 1: largest); not of an empty list.
[[nodiscard]] double quantile(std::vector<double> values, double fraction);
[[nodiscard]] Seconds median(const std::vector<Seconds>& values);

}  // namespace plumb::exec
