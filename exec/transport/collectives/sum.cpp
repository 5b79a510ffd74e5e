#include "exec/transport/collectives/sum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "exec/transport/collectives/pairwise_counter.hpp"
#include "kernels/device/numbers.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t block = 1024;  // elements that are added at once: all sums of them stay in the nearest cache

float widened(std::uint16_t bits) { return kernels::from_bf16_bits(bits); }
float widened(float value) { return value; }
double widened(double value) { return value; }

void narrow(float sum, std::uint16_t& into) { into = kernels::bf16_bits(sum); }
void narrow(float sum, float& into) { into = sum; }
void narrow(double sum, double& into) { into = sum; }

// Sums of so many parts each, the largest first.
template <class Added>
class PairwiseSums {
 public:
  explicit PairwiseSums(std::size_t parts) : levels_(static_cast<std::size_t>(std::bit_width(parts))) {}

  // Where the next part's values go; `joined` then adds what has a neighbour of its size.
  [[nodiscard]] std::array<Added, block>& next() { return levels_[used_]; }
  void joined(std::size_t count) {
    ++used_;
    for (int joins = counter_.add(); joins > 0; --joins) join(count);
  }
  // The odd ones out, the last first. Afterwards there is nothing in it.
  [[nodiscard]] const std::array<Added, block>& all(std::size_t count) {
    for (int joins = counter_.end(); joins > 0; --joins) join(count);
    used_ = 0;
    return levels_[0];
  }

 private:
  void join(std::size_t count) {
    --used_;
    for (std::size_t i = 0; i < count; ++i) levels_[used_ - 1][i] += levels_[used_][i];
  }

  std::vector<std::array<Added, block>> levels_;
  std::size_t used_ = 0;
  PairwiseCounter counter_;
};

// `Stored`: as elements stand in memory, which need not be aligned to them. `Added`: in what they are added.
template <class Stored, class Added>
void add(std::span<const std::byte* const> parts, std::span<std::byte> sum) {
  std::array<Stored, block> values;
  PairwiseSums<Added> sums(parts.size());
  for (std::size_t at = 0; at < sum.size(); at += sizeof values) {
    const std::size_t bytes = std::min(sizeof values, sum.size() - at);
    const std::size_t count = bytes / sizeof(Stored);
    for (const std::byte* const part : parts) {
      std::memcpy(values.data(), part + at, bytes);
      std::array<Added, block>& wide = sums.next();
      for (std::size_t i = 0; i < count; ++i) wide[i] = widened(values[i]);
      sums.joined(count);
    }
    const std::array<Added, block>& total = sums.all(count);
    for (std::size_t i = 0; i < count; ++i) narrow(total[i], values[i]);
    std::memcpy(sum.data() + at, values.data(), bytes);
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

void add_in_pairs(std::span<const std::byte* const> parts, ElementType type, std::span<std::byte> sum) {
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
