// How many bytes weights and gradients have that travel quantised, block by block (ZeRO++, arXiv 2306.10209).
#pragma once

#include <cstdint>

#include "common/base/units.hpp"

namespace plumb {

// Elements that have one fp32 scale, as kernels/quantise.hpp does it.
inline constexpr int quantisation_block = 128;
// Of weights that are gathered (section 3.1), and of gradients that are summed (section 3.3).
inline constexpr int quantised_weight_bits = 8;
inline constexpr int quantised_gradient_bits = 4;

// Of so many elements the values alone, two of 4 bits to a byte, without what fills up a last block.
[[nodiscard]] constexpr std::int64_t quantised_value_bytes(std::int64_t elements, int bits) {
  return (elements * bits + 7) / 8;
}

// As they travel together: their values, and a scale of each block that they begin.
[[nodiscard]] constexpr Bytes quantised_bytes(std::int64_t elements, int bits) {
  const std::int64_t blocks = (elements + quantisation_block - 1) / quantisation_block;
  return {quantised_value_bytes(elements, bits) + blocks * element_bytes(ElementType::fp32)};
}

// Of one weight or gradient, all parts together: each of the ranks that share it out has its part in blocks of its own.
// Of parts that differ in size the first ones have one element more.
[[nodiscard]] constexpr Bytes quantised_in_parts(std::int64_t elements, int parts, int bits) {
  const std::int64_t longer = elements % parts;
  return longer * quantised_bytes(elements / parts + 1, bits) +
         (parts - longer) * quantised_bytes(elements / parts, bits);
}

// Of so many bytes of a type, as if blocks did not end with the parts of weights: of memory and times.
[[nodiscard]] constexpr double quantised(double bytes, ElementType type, int bits) {
  const double scale = static_cast<double>(element_bytes(ElementType::fp32)) / quantisation_block;
  return bytes / static_cast<double>(element_bytes(type)) * (bits / 8.0 + scale);
}

}  // namespace plumb
