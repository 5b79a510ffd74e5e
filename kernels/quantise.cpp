#include "kernels/quantise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumb::kernels {
namespace {

int value_at(const QuantiseShape& shape, const std::uint8_t* values, std::int64_t i) {
  if (shape.bits == 8) return static_cast<std::int8_t>(values[i]);
  const int nibble = values[i / 2] >> (i % 2 * 4) & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

void set_value(const QuantiseShape& shape, std::uint8_t* values, std::int64_t i, int value) {
  if (shape.bits == 8) {
    values[i] = static_cast<std::uint8_t>(value);
  } else if (i % 2 == 0) {
    values[i / 2] = static_cast<std::uint8_t>(value & 15);
  } else {
    values[i / 2] = static_cast<std::uint8_t>(values[i / 2] | (value & 15) << 4);
  }
}

}  // namespace

void quantise_reference(const QuantiseShape& shape, const float* x, const QuantisedBlocks& to) {
  const float top = shape.bits == 8 ? 127 : 7;
  for (std::int64_t block = 0; block < quantised_blocks(shape); ++block) {
    const std::int64_t begin = block * shape.block;
    const std::int64_t end = std::min(begin + shape.block, shape.count);
    float largest = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      largest = std::isfinite(x[i]) ? std::max(largest, std::fabs(x[i])) : std::numeric_limits<float>::infinity();
    }
    to.scales[block] = largest / top;
    const float inverse = largest > 0 && std::isfinite(largest) ? top / largest : 0;
    for (std::int64_t i = begin; i < begin + shape.block; ++i) {
      const float scaled = i < end && inverse > 0 ? x[i] * inverse : 0;
      set_value(shape, to.values, i, static_cast<int>(std::clamp(std::nearbyint(scaled), -top, top)));
    }
  }
}

void dequantise_reduce_reference(const QuantiseShape& shape, const QuantisedPieces& pieces, double* y) {
  for (std::int64_t i = 0; i < shape.count; ++i) {
    y[i] = 0;
    for (int piece = 0; piece < pieces.count; ++piece) {
      const double scale = pieces.scales[piece * quantised_blocks(shape) + i / shape.block];
      y[i] += scale * value_at(shape, pieces.values + piece * quantised_bytes(shape), i);
    }
  }
}

}  // namespace plumb::kernels
