// Where in its text a value of a JSON document stands: the library that parses JSON does not keep positions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace plumb {

// Line and column of the byte that has `byte` others before it.
[[nodiscard]] Place place_of_byte(std::string_view text, std::size_t byte, const std::string& file);

// Of the value at `path` ("costs.stages[2].forward_s"; empty: the whole) in text that is known to be JSON; the nearest
// value around it when there is none. Reads the text up to there, so it is for messages.
[[nodiscard]] Place place_in_json(std::string_view text, std::string_view path, const std::string& file);

// The first number of a JSON text that no double holds, and the key that it belongs to; nullopt if there is none.
struct OverflowingNumber {
  std::size_t byte = 0;
  std::string number;
  std::string key;  // the last one before it
};
[[nodiscard]] std::optional<OverflowingNumber> overflowing_number(std::string_view text);

}  // namespace plumb
