#include "common/plan/gradient_clipping.hpp"

#include <algorithm>

#include "common/cost/collective_time.hpp"

namespace plumb {

Seconds clipping_time(const Plan& plan) {
  constexpr double norm_bytes = 8;  // the sum of a rank's squares, in fp64
  if (plan.training.gradient_clipping == 0) return {};
  const int all = ranks(plan.layout);
  const int per_machine = std::min(all, std::max(1, plan.cluster.machine.devices));
  return collective_time(plan.cluster.machine, Collective::all_reduce, norm_bytes,
                         {.ranks = all, .per_machine = per_machine, .ranks_per_nic = per_machine});
}

}  // namespace plumb
