// Which rounds of a calibration count.
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

}  // namespace plumb::exec
