// What is equal but for rounding, as equal classes of a uniform pipeline are, stands by name.
#pragma once

#include <cmath>
#include <cstdint>

namespace plumb {

// A step counts as shorter only if it is shorter than this much of another: by more than what rounding of sums makes.
inline constexpr double clearly = 1 - 1e-9;

// The amount of a fraction in whole billionths: its last bits do not decide an order.
[[nodiscard]] inline std::int64_t without_last_bits(double fraction) { return std::llround(std::abs(fraction) * 1e9); }

}  // namespace plumb
