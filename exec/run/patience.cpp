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

}  // namespace plumb::exec
