// When collectives end that follow one another on a stream of their own and take their predicted times.
#pragma once

#include <algorithm>

#include "common/base/units.hpp"
#include "exec/device/clock.hpp"

namespace plumb::exec {

class EmulatedLane {
 public:
  // One that may start at `ready`, behind all before it: when it ends.
  Clock::time_point start(Clock::time_point ready, Seconds time) { return free_ = after(std::max(ready, free_), time); }

 private:
  Clock::time_point free_ = {};  // when the last one ends
};

}  // namespace plumb::exec
