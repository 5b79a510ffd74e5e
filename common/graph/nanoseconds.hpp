// Times that decide an order on every rank: rounded, so that all come to the same one.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/base/units.hpp"

namespace plumb {

using Nanoseconds = std::int64_t;

[[nodiscard]] inline Nanoseconds rounded_to_nanoseconds(Seconds time) { return std::llround(time.value * 1e9); }

}  // namespace plumb
