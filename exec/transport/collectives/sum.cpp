#include "exec/transport/collectives/sum.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/base/error.hpp"
#include "kernels/device/numbers.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t block = 1024;  // elements that are added at once: their sums stay in the nearest cache

float widened(std::uint16_t bits) { return kernels::from_bf16_bits(bits); }
float widened(float value) { return value; }
double widened(double value) { return value; }

void narrow(float sum, std::uint16_t& into) { into = kernels::bf16_bits(sum); }
void narrow(float sum, float& into) { into = sum; }
void narrow(double sum, double& into) { into = sum; }

// `Stored`: as elements stand in memory, which need not be aligned to them. `Added`: in what they are added.
template <class Stored, class Added>
void add(std::span<const std::byte* const> parts, std::span<std::byte> sum) {
  std::array<Stored, block> part;
  std::array<Added, block> total;
  for (std::size_t at = 0; at < sum.size(); at += sizeof part) {
    const std::size_t bytes = std::min(sizeof part, sum.size() - at);
    const std::size_t count = bytes / sizeof(Stored);
    std::memcpy(part.data(), parts.front() + at, bytes);
    for (std::size_t i = 0; i < count; ++i) total[i] = widened(part[i]);
    for (const std::byte* const other : parts.subspan(1)) {
      std::memcpy(part.data(), other + at, bytes);
      for (std::size_t i = 0; i < count; ++i) total[i] += widened(part[i]);
    }
    for (std::size_t i = 0; i < count; ++i) narrow(total[i], part[i]);
    std::memcpy(sum.data() + at, part.data(), bytes);
  }
}

}  // namespace

void require_addable(std::size_t bytes, ElementType type) {
  const std::string name(name_of(type));
  if (type != ElementType::fp32 && type != ElementType::bf16 && type != ElementType::fp64) {
    throw RunError("", "no sums of " + name + " are made on the host", "fp32, bf16 and fp64 are added");
  }
  if (bytes % static_cast<std::size_t>(element_bytes(type)) != 0) {
    throw RunError("", std::to_string(bytes) + " bytes are no whole elements of " + name);
  }
}

void add_in_order(std::span<const std::byte* const> parts, ElementType type, std::span<std::byte> sum) {
  if (sum.empty()) return;
  if (parts.size() == 1) {  // rounding would make a signalling NaN of bf16 a quiet one
    std::memmove(sum.data(), parts.front(), sum.size());
  } else if (type == ElementType::fp32) {
    add<float, float>(parts, sum);
  } else if (type == ElementType::bf16) {
    add<std::uint16_t, float>(parts, sum);
  } else {
    add<double, double>(parts, sum);
  }
}

}  // namespace plumb::exec
