// The bits of the narrow floating-point types on the host: bf16 and IEEE fp16, rounded to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace plumb::kernels {

// NaN stays NaN, what is too large becomes infinite, subnormal numbers are kept.
[[nodiscard]] inline std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  const std::uint32_t odd = (bits >> 16) & 1;
  return static_cast<std::uint16_t>((bits + 0x7fff + odd) >> 16);
}
[[nodiscard]] std::uint16_t fp16_bits(float value);

[[nodiscard]] inline float from_bf16_bits(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
[[nodiscard]] float from_fp16_bits(std::uint16_t bits);

}  // namespace plumb::kernels
