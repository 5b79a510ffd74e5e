#include "exec/run/patience.hpp"

namespace plumb::exec {

Seconds serial_time(const Plan& plan) {
  Seconds microbatch{0};
  Seconds once{0};
  for (const ComputeCost& cost : plan.costs.stages) {
    microbatch += microbatch_time(cost, true);  // whether it is redone or not: an upper bound
    once += cost.gradient_reduction + cost.optimizer + cost.weight_gathering;
  }
  return microbatch * plan.schedule.microbatches + once;
}

}  // namespace plumb::exec
