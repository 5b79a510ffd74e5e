#include "kernels/exact_squares.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace plumb::kernels {
namespace {

constexpr unsigned digit_bits = 32;
constexpr std::uint64_t digit_mask = (std::uint64_t{1} << digit_bits) - 1;
constexpr int unit_exponent = -298;                 // of the square of the least subnormal
constexpr std::size_t between_carries = 1U << 29U;  // an addition puts less than 2^33 into a digit
constexpr std::uint32_t exponent_mask = 0x7f800000U;
constexpr std::uint32_t fraction_mask = 0x007fffffU;
constexpr unsigned fraction_bits = 23;

}  // namespace

// A value is fraction · 2^(exponent − 150), with exponent 1 for subnormals; its square has at most 48 bits.
void ExactSquares::add_square(std::uint32_t bits) {
  const std::uint32_t biased = (bits & exponent_mask) >> fraction_bits;
  const std::uint64_t fraction = (bits & fraction_mask) | (biased == 0 ? 0 : fraction_mask + 1);
  const unsigned place = 2 * (std::max<std::uint32_t>(biased, 1) - 1);
  const unsigned shift = place % digit_bits;
  const std::uint64_t square = fraction * fraction;
  const std::uint64_t low = (square & digit_mask) << shift;
  const std::uint64_t high = (square >> digit_bits) << shift;
  std::uint64_t* const to = &digits_[place / digit_bits];
  to[0] += low & digit_mask;
  to[1] += (low >> digit_bits) + (high & digit_mask);
  to[2] += high >> digit_bits;
}

void ExactSquares::add(std::span<const float> values) {
  while (!values.empty()) {
    const std::span<const float> some = values.first(std::min(values.size(), between_carries));
    for (const float value : some) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      if ((bits & exponent_mask) == exponent_mask) {
        not_finite_ = 1;
      } else {
        add_square(bits);
      }
    }
    carry();
    values = values.subspan(some.size());
  }
}

void ExactSquares::add(const ExactSquares& other) {
  for (std::size_t i = 0; i < digits; ++i) digits_[i] += other.digits_[i];
  not_finite_ |= other.not_finite_;
  carry();
}

void ExactSquares::carry() {
  std::uint64_t carried = 0;
  for (std::uint64_t& digit : digits_) {
    digit += carried;
    carried = digit >> digit_bits;
    digit &= digit_mask;
  }
}

double ExactSquares::sum() const {
  if (not_finite_ != 0) return std::numeric_limits<double>::quiet_NaN();
  std::size_t top = digits;
  while (top > 0 && digits_[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The 64 highest bits, the last of which says whether any below is set: enough to round once.
  const auto digit = [&](std::size_t below_top) { return below_top < top ? digits_[top - 1 - below_top] : 0; };
  const auto zeros = static_cast<unsigned>(std::countl_zero(static_cast<std::uint32_t>(digit(0))));
  std::uint64_t head = (digit(0) << digit_bits) | digit(1);
  head = (head << zeros) | (zeros == 0 ? 0 : digit(2) >> (digit_bits - zeros));
  const bool more = (zeros != digit_bits && (digit(2) << zeros & digit_mask) != 0) ||
                    std::any_of(digits_.begin(), digits_.begin() + static_cast<std::ptrdiff_t>(top > 3 ? top - 3 : 0),
                                [](std::uint64_t value) { return value != 0; });
  if (more) head |= 1;
  const int exponent = (static_cast<int>(top) - 2) * static_cast<int>(digit_bits) - static_cast<int>(zeros);
  return std::ldexp(static_cast<double>(head), exponent + unit_exponent);
}

ExactSquares::Numbers ExactSquares::numbers() const {
  Numbers made;
  std::ranges::copy(digits_, made.begin());
  made.back() = not_finite_;
  return made;
}

ExactSquares ExactSquares::from_numbers(const Numbers& numbers) {
  ExactSquares made;
  std::copy_n(numbers.begin(), digits, made.digits_.begin());
  made.not_finite_ = numbers.back() == 0 ? 0 : 1;
  made.carry();
  return made;
}

}  // namespace plumb::kernels
