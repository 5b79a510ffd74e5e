#include "kernels/device/numbers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace plumb::kernels {

std::uint16_t fp16_bits(float value) {
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(value) >> 16) & 0x8000;
  const float size = std::fabs(value);
  std::uint32_t bits = 0;
  if (std::isnan(value)) {
    bits = 0x7e00;
  } else if (size >= 65520.0F) {  // half way from the largest number to the next power of two
    bits = 0x7c00;
  } else if (size != 0) {
    const int exponent = std::max(std::ilogb(size), -14);
    const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // up to 2048
    bits = (static_cast<std::uint32_t>(exponent + 15) << 10) + steps - 1024;
  }
  return static_cast<std::uint16_t>(sign | bits);
}

float from_fp16_bits(std::uint16_t bits) {
  const std::uint32_t exponent = (bits >> 10) & 31;
  const std::uint32_t fraction = bits & 1023;
  float size = 0;
  if (exponent == 31) {
    size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    size = static_cast<float>(fraction) * 0x1p-24F;
  } else {
    size = std::bit_cast<float>((exponent + 127 - 15) << 23 | fraction << 13);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace plumb::kernels
