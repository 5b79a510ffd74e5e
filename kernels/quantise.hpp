// Block-wise symmetric quantisation to int8 or int4, and the sum of several ranks' quantised pieces: the two ends of a
// quantised all-to-all (ZeRO++, arXiv 2306.10209, section 3.3).
#pragma once

#include <cstdint>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

// `count` elements in blocks of `block` (32, 64, 128, 256 or 512) neighbours, the last one filled up with zeros.
struct QuantiseShape {
  std::int64_t count = 0;
  std::int64_t block = 128;
  int bits = 8;  // or 4: element 2i in the low half of byte i, 2i + 1 in the high one, in two's complement
};

[[nodiscard]] constexpr std::int64_t quantised_blocks(const QuantiseShape& shape) {
  return (shape.count + shape.block - 1) / shape.block;
}
[[nodiscard]] constexpr std::int64_t quantised_bytes(const QuantiseShape& shape) {
  return quantised_blocks(shape) * shape.block * shape.bits / 8;
}

// One array's blocks: values [quantised_bytes], at a multiple of 16 bytes on the GPU; scales [quantised_blocks].
struct QuantisedBlocks {
  std::uint8_t* values = nullptr;
  float* scales = nullptr;
};

// Several arrays' blocks, one after the other: values [count, quantised_bytes], scales [count, quantised_blocks].
struct QuantisedPieces {
  int count = 1;
  const std::uint8_t* values = nullptr;
  const float* scales = nullptr;
};

// With top = 127 or 7 and largest = max |x| of a block, in fp32: scale = largest / top, value = x · (top / largest),
// rounded to nearest even. A block with a number that is not finite gets scale infinity and values 0, and so comes back
// as NaN. x [count].
//
// On the GPU; both throw std::invalid_argument on a bad shape and CudaError where CUDA fails.
void quantise(const QuantiseShape& shape, Type type, const void* x, const QuantisedBlocks& to, Stream stream);

// y[i] = sum over the pieces, in their order and in fp32, of scale · value; with one piece this dequantises. y [count].
void dequantise_reduce(const QuantiseShape& shape, Type type, const QuantisedPieces& pieces, void* y, Stream stream);

// The same bits as the GPU's.
void quantise_reference(const QuantiseShape& shape, const float* x, const QuantisedBlocks& to);
// In fp64.
void dequantise_reduce_reference(const QuantiseShape& shape, const QuantisedPieces& pieces, double* y);

}  // namespace plumb::kernels
