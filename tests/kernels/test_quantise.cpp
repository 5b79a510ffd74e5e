// Quantisation: the kernel has its reference's bits, the error is at most half a step, and what is not finite shows.
#include "kernels/quantise.hpp"

#include <limits>

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

// One element; one too few and too many for a block; several blocks of the grid.
const std::vector<QuantiseShape> quantised_shapes = {{1, 32, 8},    {31, 32, 4},    {33, 32, 8},     {127, 64, 4},
                                                     {128, 128, 8}, {1000, 256, 4}, {20011, 512, 8}, {13000, 128, 4}};

struct Quantised {
  Bytes values;
  std::vector<float> scales;
};

Quantised by_reference(const QuantiseShape& shape, const Numbers& x) {
  Quantised result = {Bytes(static_cast<std::size_t>(quantised_bytes(shape))),
                      std::vector<float>(static_cast<std::size_t>(quantised_blocks(shape)))};
  const std::vector<float> narrow(x.begin(), x.end());
  quantise_reference(shape, narrow.data(), {result.values.data(), result.scales.data()});
  return result;
}

Numbers dequantised(const QuantiseShape& shape, const Quantised& q, int pieces = 1) {
  Numbers y(static_cast<std::size_t>(shape.count));
  dequantise_reduce_reference(shape, {pieces, q.values.data(), q.scales.data()}, y.data());
  return y;
}

// Rows of other sizes, an exact tie, and a block of zeros where there is more than one.
Numbers numbers_for(const QuantiseShape& shape, Type type) {
  Numbers x = made_up(static_cast<std::size_t>(shape.count), 5, 3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i / static_cast<std::size_t>(shape.block) == 1) x[i] = 0;
  }
  if (x.size() > 30) x[0] = 14, x[1] = 3, x[2] = -3, x[3] = 1;  // int4: steps of 2, so 3 and 1 are half way
  return rounded(type, x);
}

std::size_t words(std::size_t bytes) { return (bytes + 3) / 4; }

}  // namespace

TEST_CASE("A quantised number is at most half a step off, and the largest is exact but for rounding") {
  for (const QuantiseShape& shape : quantised_shapes) {
    const Numbers x = numbers_for(shape, Type::fp32);
    const Quantised q = by_reference(shape, x);
    const Numbers back = dequantised(shape, q);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double step = q.scales[i / static_cast<std::size_t>(shape.block)];
      CHECK(std::fabs(back[i] - x[i]) <= 0.5 * step * (1 + 1e-5));
    }
  }
}

TEST_CASE("Ties go to the even step") {
  const QuantiseShape shape = {.count = 4, .block = 32, .bits = 4};
  CHECK(dequantised(shape, by_reference(shape, {14, 3, -3, 1})) == Numbers{14, 4, -4, 0});
}

TEST_CASE("The quantising kernel has the bits of its reference") {
  need_device();
  for (const Type type : all_types) {
    for (const QuantiseShape& shape : quantised_shapes) {
      INFO(shape.count << " in blocks of " << shape.block << ", " << shape.bits << " bits");
      Numbers x = numbers_for(shape, type);
      if (x.size() > 900) {
        x[600] = std::numeric_limits<double>::infinity();
        x[899] = std::numeric_limits<double>::quiet_NaN();
      }
      const Quantised expected = by_reference(shape, x);
      each_way([&] {
        const Array in(type, x);
        const Array values(Type::fp32, words(expected.values.size()));
        const Array scales(Type::fp32, expected.scales.size());
        quantise(shape, type, in.data(), {static_cast<std::uint8_t*>(values.data()), scales.floats()}, {});
        Bytes found = values.raw();
        found.resize(expected.values.size());
        CHECK(found == expected.values);
        CHECK(scales.read() == Numbers(expected.scales.begin(), expected.scales.end()));
      });
    }
  }
}

TEST_CASE("A block with a number that is not finite comes back as NaN, the others as they are") {
  const QuantiseShape shape = {.count = 96, .block = 32, .bits = 8};
  Numbers x = made_up(96, 1);
  x[40] = std::numeric_limits<double>::quiet_NaN();
  const Numbers back = dequantised(shape, by_reference(shape, x));
  CHECK(std::isfinite(back[31]));
  CHECK(std::isnan(back[32]));
  CHECK(std::isnan(back[63]));
  CHECK(std::isfinite(back[64]));
}

TEST_CASE("The sum of quantised pieces is as near to fp64 as its type allows") {
  need_device();
  for (const Type type : all_types) {
    for (const QuantiseShape& shape : quantised_shapes) {
      constexpr int pieces = 5;
      INFO(shape.count << " in blocks of " << shape.block << ", " << shape.bits << " bits");
      Quantised all;
      for (unsigned piece = 0; piece < pieces; ++piece) {
        const Quantised q = by_reference(shape, made_up(static_cast<std::size_t>(shape.count), 10 + piece));
        all.values = all.values + q.values;
        all.scales.insert(all.scales.end(), q.scales.begin(), q.scales.end());
      }
      const Numbers exact = dequantised(shape, all, pieces);
      same_bits_each_way([&] {
        const Array values(Type::fp32, words(all.values.size()));
        copy_in(values.data(), all.values.data(), all.values.size());
        const Array scales(Type::fp32, Numbers(all.scales.begin(), all.scales.end()));
        const Array y(type, exact.size());
        dequantise_reduce(shape, type, {pieces, static_cast<const std::uint8_t*>(values.data()), scales.floats()},
                          y.data(), {});
        CHECK(error_ratio(type, y.read(), exact) <= most_error);
        return y.raw();
      });
    }
  }
}

TEST_CASE("Quantisation refuses other blocks and bits") {
  need_device();
  CHECK_THROWS_AS(quantise({.count = 1, .block = 48}, Type::fp32, nullptr, {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(quantise({.count = 1, .bits = 2}, Type::fp32, nullptr, {}, {}), std::invalid_argument);
}
