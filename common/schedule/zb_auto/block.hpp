// Schedules that repeat one microbatch's building block: every action at the same moment of each period.
#pragma once

#include "common/schedule/zb_auto/model.hpp"

namespace plumb::zb_auto {

// When each step of microbatch 0 starts; microbatch k follows k periods later.
struct PeriodicBlock {
  double period = 0;
  std::vector<double> start;  // per step
  double cost = never;        // the smaller, the better among blocks of one period
};

// A block that needs little memory and whose microbatch is soon through, found from `rounds` tries, always the same.
[[nodiscard]] PeriodicBlock find_block(const Model& model, double period, int rounds);

// The ranks' lists if every microbatch went so: they need not fit the limits.
[[nodiscard]] StepLists unrolled(const Model& model, const PeriodicBlock& block);

}  // namespace plumb::zb_auto
