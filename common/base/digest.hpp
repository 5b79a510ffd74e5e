// A short fingerprint of a text: equal texts have equal ones, on every machine.
#pragma once

#include <string>
#include <string_view>

namespace plumb {

// FNV-1a, 64 bits (Fowler, Noll, Vo), as 16 hexadecimal digits.
[[nodiscard]] std::string digest(std::string_view text);

}  // namespace plumb
