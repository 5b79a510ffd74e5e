// A short fingerprint of a text: equal texts have equal ones, on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plumb {

// FNV-1a, 64 bits (Fowler, Noll, Vo), continued from the hash of what stands before.
inline constexpr std::uint64_t fnv1a_of_nothing = 0xcbf29ce484222325U;
[[nodiscard]] std::uint64_t fnv1a(std::string_view bytes, std::uint64_t before = fnv1a_of_nothing);

// Its 16 hexadecimal digits.
[[nodiscard]] std::string digest(std::string_view text);

}  // namespace plumb
