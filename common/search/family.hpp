// What a candidate of a search settles before its split: of one family all stage costs are sums of the same blocks.
#pragma once

#include <cstdint>

#include "common/scenario/scenario.hpp"

namespace plumb {

struct Family {
  Layout layout = {};
  std::int64_t microbatch = 1;
  Recompute recompute = {};
  Offload offload = {};
  ScheduleChoice schedule = {};
  bool operator==(const Family&) const = default;
};

// The scenario with only this family's layout, microbatch, recompute, offload and schedule.
[[nodiscard]] Scenario settled(const Scenario& scenario, const Family& family);

}  // namespace plumb
