#include "exec/transport/collectives/quantised_values.hpp"

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/cost/block_quantisation.hpp"
#include "kernels/quantise.hpp"

namespace plumb::exec {
namespace {

static_assert(kernels::QuantiseShape{}.block == quantisation_block);  // what a kernel takes unless it is told

kernels::QuantiseShape shape_of(std::size_t elements, int bits) {
  return {.count = static_cast<std::int64_t>(elements), .block = quantisation_block, .bits = bits};
}

std::size_t bytes_of_values(std::size_t elements, int bits) {
  return static_cast<std::size_t>(quantised_value_bytes(static_cast<std::int64_t>(elements), bits));
}

// As the kernels have them: whole ones.
struct Blocks {
  explicit Blocks(const kernels::QuantiseShape& shape)
      : values(static_cast<std::size_t>(kernels::quantised_bytes(shape))),
        scales(static_cast<std::size_t>(kernels::quantised_blocks(shape))) {}
  [[nodiscard]] std::size_t bytes_of_scales() const { return scales.size() * sizeof(float); }
  std::vector<std::uint8_t> values;
  std::vector<float> scales;
};

}  // namespace

std::size_t quantised_size(std::size_t elements, int bits) {
  return static_cast<std::size_t>(quantised_bytes(static_cast<std::int64_t>(elements), bits).value);
}

void quantise(std::span<const float> values, int bits, std::span<std::byte> into) {
  if (values.empty()) return;
  const kernels::QuantiseShape shape = shape_of(values.size(), bits);
  Blocks blocks(shape);
  kernels::quantise_reference(shape, values.data(), {.values = blocks.values.data(), .scales = blocks.scales.data()});
  const std::size_t bytes = bytes_of_values(values.size(), bits);
  std::memcpy(into.data(), blocks.values.data(), bytes);
  std::memcpy(into.data() + bytes, blocks.scales.data(), blocks.bytes_of_scales());
}

// A product of two fp32 numbers is exact in fp64, so that its one rounding is the kernel's.
void dequantise(std::span<const std::byte> from, int bits, std::span<float> values) {
  if (values.empty()) return;
  const kernels::QuantiseShape shape = shape_of(values.size(), bits);
  Blocks blocks(shape);
  const std::size_t bytes = bytes_of_values(values.size(), bits);
  std::memcpy(blocks.values.data(), from.data(), bytes);
  std::memcpy(blocks.scales.data(), from.data() + bytes, blocks.bytes_of_scales());
  std::vector<double> exact(values.size());
  kernels::dequantise_reduce_reference(
      shape, {.count = 1, .values = blocks.values.data(), .scales = blocks.scales.data()}, exact.data());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(exact[i]);
}

}  // namespace plumb::exec
