#include "exec/stage/primitives/exact_squares.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/catch.hpp"

using plumb::exec::ExactSquares;

namespace {

ExactSquares of(std::span<const float> values) {
  ExactSquares squares;
  squares.add(values);
  return squares;
}

double largest_float() { return std::numeric_limits<float>::max(); }

}  // namespace

// Oracle: whole numbers below 2^24 times one power of two, whose squares add up exactly in 64 bits.
TEST_CASE("the sum of squares is the exact one, rounded once") {
  std::mt19937_64 draw(1);
  for (int round = 0; round < 2000; ++round) {
    const int exponent = static_cast<int>(draw() % 224) - 124;
    const std::size_t count = draw() % 40;
    const std::uint64_t below = std::uint64_t{1} << (1 + draw() % 24);
    std::uint64_t exact = 0;
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t whole = draw() % below;
      exact += whole * whole;
      values.push_back(std::ldexp(static_cast<float>(whole), exponent) * (draw() % 2 == 0 ? 1.0F : -1.0F));
    }
    REQUIRE(of(values).sum() == std::ldexp(static_cast<double>(exact), 2 * exponent));
  }
}

TEST_CASE("the largest, the least and numbers that are none have their sums") {
  const std::vector<float> largest(3, std::numeric_limits<float>::max());
  CHECK(of(largest).sum() == Approx(3 * largest_float() * largest_float()).epsilon(1e-15));
  const std::vector<float> least(4, std::numeric_limits<float>::denorm_min());
  CHECK(of(least).sum() == std::ldexp(4.0, -298));
  // Half a unit in the last place goes to even, and with the least bit below it up.
  const float quarter = std::ldexp(1.0F, -27);  // of a unit, squared
  const std::vector<float> half{1.0F, quarter, quarter};
  CHECK(of(half).sum() == 1.0);
  const std::vector<float> above_half{1.0F, quarter, quarter, std::ldexp(1.0F, -140)};
  CHECK(of(above_half).sum() == 1.0 + std::numeric_limits<double>::epsilon());
  CHECK(of({}).sum() == 0);
  for (const float none : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> values{1.0F, none};
    CHECK(std::isnan(of(values).sum()));
  }
}

TEST_CASE("a sum of squares has the same bytes in every order and however it is shared out") {
  std::mt19937_64 draw(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(1000);
  for (float& value : values) value = std::ldexp(normal(draw), static_cast<int>(draw() % 120) - 60);
  const ExactSquares whole = of(values);
  for (int round = 0; round < 20; ++round) {
    std::ranges::shuffle(values, draw);
    ExactSquares sum;
    for (std::span<const float> rest = values; !rest.empty();) {
      const std::span<const float> part = rest.first(std::min<std::size_t>(rest.size(), 1 + draw() % 300));
      sum.add(ExactSquares::from_bytes(of(part).to_bytes()));
      rest = rest.subspan(part.size());
    }
    REQUIRE(sum.to_bytes() == whole.to_bytes());
    REQUIRE(sum.sum() == whole.sum());
  }
}
