// The exact sum of squares: its reference by numbers whose squares add up in 64 bits, its kernel by the reference.
#include "kernels/exact_squares.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

ExactSquares of(std::span<const float> values) {
  ExactSquares squares;
  squares.add(values);
  return squares;
}

std::vector<float> of_all_sizes(std::size_t count, unsigned seed) {
  std::mt19937_64 draw(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(normal(draw), static_cast<int>(draw() % 250) - 140);
  return values;
}

// By the kernel, of tensors that begin `skipped` elements into their memory.
ExactSquares on_device(const std::vector<std::vector<float>>& tensors, std::size_t skipped = 0) {
  std::vector<std::unique_ptr<Array>> memory;
  std::vector<SquaresTensor> given;
  for (const std::vector<float>& values : tensors) {
    Numbers numbers(skipped, std::numeric_limits<double>::quiet_NaN());
    numbers.insert(numbers.end(), values.begin(), values.end());
    memory.push_back(std::make_unique<Array>(Type::fp32, numbers));
    given.push_back({.values = memory.back()->floats() + skipped, .size = static_cast<std::int64_t>(values.size())});
  }
  const Array workspace(Type::fp32, 2 * static_cast<std::size_t>(exact_squares_workspace()));
  ExactSquares::Numbers found{};
  const Array numbers(Type::fp32, 2 * found.size());
  exact_squares(given, static_cast<std::uint64_t*>(workspace.data()), static_cast<std::uint64_t*>(numbers.data()), {});
  std::memcpy(found.data(), numbers.raw().data(), sizeof(found));
  return ExactSquares::from_numbers(found);
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

TEST_CASE("a sum of squares has the same numbers in every order and however it is shared out") {
  std::mt19937_64 draw(2);
  std::vector<float> values = of_all_sizes(1000, 2);
  const ExactSquares whole = of(values);
  for (int round = 0; round < 20; ++round) {
    std::ranges::shuffle(values, draw);
    ExactSquares sum;
    for (std::span<const float> rest = values; !rest.empty();) {
      const std::span<const float> part = rest.first(std::min<std::size_t>(rest.size(), 1 + draw() % 300));
      sum.add(ExactSquares::from_numbers(of(part).numbers()));
      rest = rest.subspan(part.size());
    }
    REQUIRE(sum.numbers() == whole.numbers());
    REQUIRE(sum.sum() == whole.sum());
  }
}

TEST_CASE("the kernel's sum of squares has the reference's numbers, of one tensor or many, aligned or not") {
  need_device();
  // Around a pack, a block's chunk of 16,384, and so many chunks that blocks go over several.
  for (const std::size_t size : {0, 1, 3, 4, 16383, 16384, 16385, 300'000}) {
    const std::vector<float> values = of_all_sizes(size, static_cast<unsigned>(size));
    for (const std::size_t skipped : {0, 1, 4}) {
      INFO(size << " values behind " << skipped);
      each_way([&] { CHECK(on_device({values}, skipped) == of(values)); });
    }
  }
  // 400 tensors are three launches.
  std::vector<std::vector<float>> tensors;
  ExactSquares sum;
  for (unsigned i = 0; i < 400; ++i) {
    tensors.push_back(of_all_sizes(i % 7 * 5, i));
    sum.add(of(tensors.back()));
  }
  each_way([&] { CHECK(on_device(tensors) == sum); });
  CHECK(on_device({}) == ExactSquares{});
}

TEST_CASE("the kernel adds up the largest and the least numbers, and says of which there is no sum") {
  need_device();
  std::vector<float> values(20'000, std::numeric_limits<float>::max());
  values[7] = std::numeric_limits<float>::denorm_min();
  CHECK(on_device({values}) == of(values));
  for (const float none : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    values[11] = none;
    CHECK(std::isnan(on_device({{1.0F}, values, {2.0F}}).sum()));
  }
}
