// The clock that a rank's times are read from.
#pragma once

#include <chrono>

#include "common/base/units.hpp"

namespace plumb::exec {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC: one time base for all ranks of a host
[[nodiscard]] inline Seconds seconds_of(Clock::time_point time) {
  return {std::chrono::duration<double>(time.time_since_epoch()).count()};
}

}  // namespace plumb::exec
