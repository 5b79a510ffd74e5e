#include "exec/run/patience.hpp"

#include <algorithm>
#include <chrono>

namespace plumb::exec {

Seconds serial_time(const Plan& plan) {
  Seconds microbatch{0};
  Seconds optimizer{0};
  for (const ComputeCost& cost : plan.costs.stages) {
    microbatch += microbatch_time(cost, true);  // whether it is redone or not: an upper bound
    optimizer += cost.optimizer;
  }
  return microbatch * plan.schedule.microbatches + optimizer;
}

Clock::time_point after(Clock::time_point time, Seconds delay) {
  // Beyond a year nobody waits; the clock's own range ends not much later.
  const std::chrono::duration<double> bounded(std::min(delay.value, 3.0e7));
  return time + std::chrono::duration_cast<Clock::duration>(bounded);
}

}  // namespace plumb::exec
