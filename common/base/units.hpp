// Quantities with their unit in the type, so that seconds and bytes cannot be mixed.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

// A number of one unit. Adds to its own kind, scales by plain numbers; the ratio of two is a plain number.
template <class Unit, class Number>
struct Quantity {
  Number value{};

  friend constexpr auto operator<=>(const Quantity&, const Quantity&) = default;
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator-(Quantity a) { return {-a.value}; }
  friend constexpr Quantity operator*(Quantity a, Number factor) { return {a.value * factor}; }
  friend constexpr Quantity operator*(Number factor, Quantity a) { return {a.value * factor}; }
  friend constexpr Quantity operator/(Quantity a, Number divisor) { return {a.value / divisor}; }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value) / static_cast<double>(b.value);
  }
};

using Seconds = Quantity<struct SecondUnit, double>;
using Bytes = Quantity<struct ByteUnit, std::int64_t>;
using Flops = Quantity<struct FlopUnit, double>;
// No time that is read from outside may be longer (30 years): sums of such times stay finite and simulators sane.
inline constexpr Seconds longest_time{1e9};

using BytesPerSecond = Quantity<struct BytesPerSecondUnit, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondUnit, double>;
// Of what is read from outside: no message takes longer than times may, and simulators stay sane.
inline constexpr BytesPerSecond slowest_bandwidth{1};
inline constexpr BytesPerSecond fastest_bandwidth{1e18};
inline constexpr FlopsPerSecond slowest_peak{1e3};
inline constexpr FlopsPerSecond fastest_peak{1e24};
inline constexpr Bytes largest_amount{1'000'000'000'000'000'000};

[[nodiscard]] constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return {static_cast<double>(amount.value) / rate.value};
}
[[nodiscard]] constexpr Seconds operator/(Flops work, FlopsPerSecond rate) { return {work.value / rate.value}; }

// The type of the elements of a tensor; sizes in bytes by `element_bytes`.
enum class ElementType : std::uint8_t { fp32, bf16, fp16, fp64, int64 };

[[nodiscard]] constexpr std::int64_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::fp32:
      return 4;
    case ElementType::bf16:
    case ElementType::fp16:
      return 2;
    case ElementType::fp64:
    case ElementType::int64:
      return 8;
  }
  return 0;
}

// "fp32", "bf16": as in scenarios, plans and profiles.
[[nodiscard]] constexpr std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::fp32:
      return "fp32";
    case ElementType::bf16:
      return "bf16";
    case ElementType::fp16:
      return "fp16";
    case ElementType::fp64:
      return "fp64";
    case ElementType::int64:
      return "int64";
  }
  return "";
}

template <class Enum>
[[nodiscard]] std::vector<std::string> names_of(std::initializer_list<Enum> values) {
  std::vector<std::string> names;
  for (const Enum value : values) names.emplace_back(name_of(value));
  return names;
}

// Of the types that models are trained in: the first ones, in their order.
[[nodiscard]] inline const std::vector<std::string>& training_precision_names() {
  static const std::vector<std::string> names = names_of({ElementType::fp32, ElementType::bf16, ElementType::fp16});
  return names;
}

}  // namespace plumb
