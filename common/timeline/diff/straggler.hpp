// Ranks that are slower than the others in everything they compute. Internal to the diff.
#pragma once

#include <optional>
#include <vector>

#include "common/cost/profile/profile_noise.hpp"
#include "common/graph/schedule_graph.hpp"

namespace plumb {

// A rank lags by 5% or more behind the median rank, which itself computes about as predicted (else it is the prediction
// that is wrong), and in each kind of compute alike within 10%: then it is the rank, not one kernel. Per rank how many
// times as long as the median rank it computes, each against its prediction; empty if it is no straggler.
inline constexpr double straggler_lag_fraction = trusted_uncertainty_fraction;
inline constexpr double straggler_spread_fraction = 0.10;

[[nodiscard]] std::vector<std::optional<double>> stragglers(const ScheduleGraph& graph,
                                                            const std::vector<Seconds>& predicted,
                                                            const std::vector<Seconds>& measured);

}  // namespace plumb
