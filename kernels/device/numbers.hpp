// The bits of the narrow floating-point types on the host: bf16 and IEEE fp16, rounded to nearest even.
#pragma once

#include <cstdint>

namespace plumb::kernels {

// NaN stays NaN, what is too large becomes infinite, subnormal numbers are kept.
[[nodiscard]] std::uint16_t bf16_bits(float value);
[[nodiscard]] std::uint16_t fp16_bits(float value);

[[nodiscard]] float from_bf16_bits(std::uint16_t bits);
[[nodiscard]] float from_fp16_bits(std::uint16_t bits);

}  // namespace plumb::kernels
