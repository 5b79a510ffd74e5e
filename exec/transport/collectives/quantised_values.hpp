// Values that travel between ranks in blocks of integers, each block with a scale (ZeRO++, arXiv 2306.10209).
#pragma once

#include <cstddef>
#include <span>

namespace plumb::exec {

// Bytes of so many elements in blocks of common/cost/block_quantisation.hpp: their values of 4 or 8 bits, without what
// fills up the last block, and behind these a scale for each block.
[[nodiscard]] std::size_t quantised_size(std::size_t elements, int bits);

// By kernels/quantise.hpp, and back. Precondition: `into` and `from` are of quantised_size.
void quantise(std::span<const float> values, int bits, std::span<std::byte> into);
void dequantise(std::span<const std::byte> from, int bits, std::span<float> values);

}  // namespace plumb::exec
