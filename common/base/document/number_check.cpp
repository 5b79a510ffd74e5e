#include "common/base/document/number_check.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <string>

#include "common/base/excerpt.hpp"

namespace plumb {
namespace {

// CLI11's own checks let "nan" through and print bounds with all their digits.
template <class Number, class Fits>
CLI::Validator number_check(const std::string& expected, const Fits& fits) {
  const auto check = [expected, fits](const std::string& word) -> std::string {
    Number number{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && end == word.data() + word.size() && fits(number)) return "";
    return fmt::format("expected {}, found '{}'", expected, excerpt(word));
  };
  return CLI::Validator(check, "", "number");
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return number_check<std::int64_t>(fmt::format("a whole number from {} to {}", least, most),
                                    [least, most](std::int64_t number) { return number >= least && number <= most; });
}

CLI::Validator number_from(double least, double most) {
  const bool bounded = most < std::numeric_limits<double>::max();
  return number_check<double>(
      bounded ? fmt::format("a number from {} to {}", least, most) : fmt::format("a number from {} on", least),
      [least, most](double number) { return number >= least && number <= most; });
}

CLI::Validator number_above(double bound) {
  return number_check<double>(fmt::format("a number above {}", bound),
                              [bound](double number) { return number > bound && std::isfinite(number); });
}

}  // namespace plumb
