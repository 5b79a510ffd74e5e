#include "exec/emulation/wire_times.hpp"

#include "common/plan/plan_costs.hpp"

namespace plumb::exec {

// The groups of the first pipeline rank stand like those of all.
WireTimes::WireTimes(const Plan& plan) : plan_(plan), of_data_(plan, stage_groups(plan, 0)) {}

Seconds WireTimes::reduction(Bytes gradients) const { return time_of(of_data_.reduction(gradients)); }

Seconds WireTimes::sum_over_copies(Bytes own) const {
  return time_of(of_data_.sum_over_copies(static_cast<double>(own.value)));
}

Seconds WireTimes::exchange(int pipeline_rank, int peer, Bytes gradients) const {
  return transfer_time(transfer_between(plan_.costs, peer, pipeline_rank), gradients);
}

}  // namespace plumb::exec
