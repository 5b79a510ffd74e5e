#include "exec/transport/collectives/sum.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }

// The nearer of the two bf16 on either side; the even one half way. Of finite, normal values.
std::uint16_t nearest_bf16(float value) {
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);  // towards zero
  const auto above = static_cast<std::uint16_t>(below + 1);
  const double down = std::abs(double{value} - double{from_bf16(below)});
  const double up = std::abs(double{from_bf16(above)} - double{value});
  if (down == up) return below % 2 == 0 ? below : above;
  return down < up ? below : above;
}

template <class Element>
std::vector<Element> sum_of(const std::vector<std::vector<Element>>& values, ElementType type) {
  std::vector<const std::byte*> parts;
  for (const auto& part : values) parts.push_back(const_bytes(part).data());
  std::vector<Element> sum(values.front().size());
  add_in_pairs(parts, type, bytes(sum));
  return sum;
}

}  // namespace

TEST_CASE("a sum is added in pairs of neighbours, bit for bit, whatever the count") {
  const std::size_t count = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{1023}, std::size_t{1024},
                                     std::size_t{1025}, std::size_t{5000});
  const auto narrow = random_values<float>(7, count, 1);
  const auto wide = random_values<double>(5, count, 2);
  std::vector<float> narrow_sum(count);
  std::vector<double> wide_sum(count);
  for (std::size_t i = 0; i < count; ++i) {
    narrow_sum[i] = ((narrow[0][i] + narrow[1][i]) + (narrow[2][i] + narrow[3][i])) +
                    ((narrow[4][i] + narrow[5][i]) + narrow[6][i]);
    wide_sum[i] = ((wide[0][i] + wide[1][i]) + (wide[2][i] + wide[3][i])) + wide[4][i];
  }
  CHECK(sum_of(narrow, ElementType::fp32) == narrow_sum);
  CHECK(sum_of(wide, ElementType::fp64) == wide_sum);
}

TEST_CASE("a sum of many parts has the bits of the sum of sums of 2, 4 or 8 neighbours each") {
  for (const int parts : {2, 3, 5, 8, 11, 16, 24}) {
    const auto values = random_values<float>(parts, 300, static_cast<unsigned>(parts));
    const std::vector<float> expected = sum_of(values, ElementType::fp32);
    CHECK(expected == pairwise_sum(values));
    for (const std::size_t together : {2, 4, 8}) {
      std::vector<std::vector<float>> sums;
      for (std::size_t first = 0; first < values.size(); first += together) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
        const auto end =
            first + together < values.size() ? begin + static_cast<std::ptrdiff_t>(together) : values.end();
        sums.push_back(sum_of(std::vector<std::vector<float>>(begin, end), ElementType::fp32));
      }
      CAPTURE(parts, together);
      CHECK(sum_of(sums, ElementType::fp32) == expected);
    }
  }
}

TEST_CASE("bf16 is added in fp32 and rounded once, to the nearest, ties to even") {
  const std::size_t count = 3000;
  const auto values = random_values<float>(4, count, 3);
  std::vector<std::vector<std::uint16_t>> parts(4, std::vector<std::uint16_t>(count));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (std::size_t i = 0; i < count; ++i) parts[rank][i] = nearest_bf16(values[rank][i]);
  }
  std::vector<std::uint16_t> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = nearest_bf16((from_bf16(parts[0][i]) + from_bf16(parts[1][i])) +
                               (from_bf16(parts[2][i]) + from_bf16(parts[3][i])));
  }
  CHECK(sum_of(parts, ElementType::bf16) == expected);
  // 1 + 2⁻⁸ lies half way between 1 and the next bf16, 1 + 2⁻⁷; rounded after each addition, 2⁻⁸ would be lost twice.
  const std::uint16_t one = nearest_bf16(1);
  const std::uint16_t half_a_step = nearest_bf16(0x1p-8F);
  CHECK(sum_of<std::uint16_t>({{one}, {half_a_step}}, ElementType::bf16).front() == one);
  CHECK(sum_of<std::uint16_t>({{one}, {half_a_step}, {half_a_step}}, ElementType::bf16).front() == one + 1);
  CHECK(std::isnan(from_bf16(sum_of<std::uint16_t>({{0x7f80}, {0xff80}}, ElementType::bf16).front())));
}

TEST_CASE("the sum of one part is that part, also where it is minus zero or a signalling NaN") {
  const std::vector<std::uint16_t> odd{0x8000, 0x7f81, 0xff80, 0x0001};
  CHECK(sum_of<std::uint16_t>({odd}, ElementType::bf16) == odd);
  CHECK(std::signbit(sum_of<float>({{-0.0F}, {-0.0F}}, ElementType::fp32).front()));
}

TEST_CASE("a sum may be one of its parts, and parts need not be aligned") {
  const auto values = random_values<float>(3, 2000, 4);
  std::vector<std::byte> memory(1 + 2000 * sizeof(float));
  const std::span<std::byte> shifted = std::span(memory).subspan(1);
  std::ranges::copy(const_bytes(values[1]), shifted.begin());
  const std::array<const std::byte*, 3> parts{const_bytes(values[0]).data(), shifted.data(),
                                              const_bytes(values[2]).data()};
  add_in_pairs(parts, ElementType::fp32, shifted);
  const std::vector<float> expected = sum_of(values, ElementType::fp32);
  CHECK(std::ranges::equal(shifted, const_bytes(expected)));
}

TEST_CASE("types that are not added, and half elements, are refused by name") {
  CHECK_NOTHROW(require_addable(6, ElementType::bf16));
  CHECK_THROWS_WITH(require_addable(8, ElementType::int64), ContainsSubstring("no sums of int64"));
  CHECK_THROWS_WITH(require_addable(8, ElementType::fp16), ContainsSubstring("no sums of fp16"));
  CHECK_THROWS_WITH(require_addable(6, ElementType::fp32), ContainsSubstring("6 bytes are no whole elements of fp32"));
}
