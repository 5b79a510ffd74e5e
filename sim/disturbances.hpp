// Disturbances of a step as changes of speed of single things: devices, directions of ports, paths.
#pragma once

#include <span>
#include <vector>

#include "common/graph/disturbance.hpp"
#include "sim/platform.hpp"

namespace plumb::sim {

// From `date` on it runs at `factor` of its speed.
struct SpeedChange {
  Seconds date = {};
  double factor = 1;
  bool operator==(const SpeedChange&) const = default;
};

// Of one thing that all of these disturb, ascending; the first is at zero. Factors of those that overlap multiply.
[[nodiscard]] std::vector<SpeedChange> speed_changes(std::span<const Disturbance> of_one_thing);

// How long something takes that begins at `begin` and would take `alone` at full speed: infinite if it never ends.
[[nodiscard]] Seconds time_under(std::span<const SpeedChange> changes, Seconds begin, Seconds alone);

// Whether something stops and never comes back.
[[nodiscard]] bool anything_fails(std::span<const Disturbance> disturbances);

// Throws InputError for ranks that the platform has not, factors outside of 0 and 0.001 to 1, windows that are none,
// and devices of ranks that share cores: these have no speed of their own.
void require_valid(std::span<const Disturbance> disturbances, const Platform& platform);

}  // namespace plumb::sim
