// How many bytes weights and gradients have that travel quantised, block by block (ZeRO++, arXiv 2306.10209).
#pragma once

#include "common/base/units.hpp"

namespace plumb {

// Elements that have one fp32 scale, as kernels/quantise.hpp does it.
inline constexpr int quantisation_block = 128;
// Of weights that are gathered (section 3.1), and of gradients that are summed (section 3.3).
inline constexpr int quantised_weight_bits = 8;
inline constexpr int quantised_gradient_bits = 4;

// Of so many bytes of a type: values of so many bits, and their scales; without what fills up a last block.
[[nodiscard]] constexpr double quantised(double bytes, ElementType type, int bits) {
  const double scale = static_cast<double>(element_bytes(ElementType::fp32)) / quantisation_block;
  return bytes / static_cast<double>(element_bytes(type)) * (bits / 8.0 + scale);
}

}  // namespace plumb
