#include "exec/calibrate/calibration_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace plumb::exec {
namespace {

// A round that another program disturbs takes longer; one with a faster clock, shorter. On a shared two-core machine
// quiet rounds stay within 10% of each other.
constexpr double largest_deviation = 0.25;

}  // namespace

Seconds total(const CalibrationRound& round) {
  Seconds sum;
  for (const BlockSample& sample : round.samples) {
    sum += sample.forward + sample.input_gradient + sample.weight_gradient;
  }
  return sum;
}

std::vector<CalibrationRound> undisturbed(const std::vector<CalibrationRound>& rounds) {
  std::vector<Seconds> totals;
  for (const CalibrationRound& round : rounds) {
    totals.push_back(total(round));
  }
  std::vector<CalibrationRound> kept;
  if (rounds.empty()) {
    return kept;
  }
  // One of the rounds, not the mean of the two in the middle: these may both be far from it, and none would be kept.
  const auto lower_median = totals.begin() + static_cast<std::ptrdiff_t>((totals.size() - 1) / 2);
  std::nth_element(totals.begin(), lower_median, totals.end());
  const Seconds middle = *lower_median;
  std::copy_if(rounds.begin(), rounds.end(), std::back_inserter(kept), [&](const CalibrationRound& round) {
    return std::abs((total(round) - middle).value) <= largest_deviation * middle.value;
  });
  return kept;
}

}  // namespace plumb::exec
