// The clock that a rank's times are read from.
#pragma once

#include <algorithm>
#include <chrono>

#include "common/base/units.hpp"

namespace plumb::exec {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC: one time base for all ranks of a host
[[nodiscard]] inline Seconds seconds_of(Clock::time_point time) {
  return {std::chrono::duration<double>(time.time_since_epoch()).count()};
}

// So long behind `time`, as far as the clock goes: beyond a year nobody waits, and its range ends not much later.
[[nodiscard]] inline Clock::time_point after(Clock::time_point time, Seconds delay) {
  const std::chrono::duration<double> bounded(std::min(delay.value, 3.0e7));
  return time + std::chrono::duration_cast<Clock::duration>(bounded);
}

}  // namespace plumb::exec
