// Draws that depend on a seed, a name and a count alone: the same everywhere and in whatever order they are taken
// (distributions of <random> differ by library).
#pragma once

#include <cstdint>
#include <string_view>

namespace plumb {

// Between 0 and 1, neither of them: the top 53 bits of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) at this place.
[[nodiscard]] double unit_draw(std::uint64_t seed, std::string_view name, std::uint64_t count);

// Of mean 0 and standard deviation 1, by the cosine of Box and Muller (Annals of Mathematical Statistics 29, 1958).
[[nodiscard]] double normal_draw(std::uint64_t seed, std::string_view name, std::uint64_t count);

// The lognormal factor of mean 1 and standard deviation `spread` at this draw of a normal one: exp(s·z − s²/2) with
// s² = ln(1 + spread²), on a grid of 2⁻⁴⁰, so that the last bits of one mathematics library or another do not matter.
[[nodiscard]] double lognormal_factor(double normal, double spread);

}  // namespace plumb
