// What the numbers of a command line must be.
#pragma once

#include <cstdint>
#include <limits>

namespace CLI {
class Validator;
}

namespace plumb {

// For `check` of every option that is a number: a whole one, or any finite one, within these bounds. What does not fit
// is refused with what was expected.
[[nodiscard]] CLI::Validator whole_number(std::int64_t least, std::int64_t most);
[[nodiscard]] CLI::Validator number_from(double least, double most = std::numeric_limits<double>::max());
[[nodiscard]] CLI::Validator number_above(double bound);

}  // namespace plumb
