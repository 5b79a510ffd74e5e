// Numbers of fp32 as two of TF32, products of those, and what limits their use, emulated on the host.
#include <cmath>
#include <limits>

#include "kernels/device/device.cuh"
#include "kernels/device/wide_mma.cuh"
#include "kernels/gated_delta/gated_delta.hpp"
#include "tests/catch.hpp"

using namespace plumb::kernels;

namespace {

constexpr float largest = std::numeric_limits<float>::max();

struct Parts {
  std::uint32_t high;
  std::uint32_t low;
};

Parts parts_of(std::uint32_t bits) {
  const float x[1] = {device::float_of(bits)};
  std::uint32_t high[1];
  std::uint32_t low[1];
  device::split(x, high, low);
  return {high[0], low[0]};
}

// x · 1, as one of the 16 products of a sum by the tensor cores.
float times_one(float x) {
  constexpr int stride = 24;
  alignas(32) float rows[16 * stride] = {};
  alignas(32) float columns[8 * stride] = {};
  for (int row = 0; row < 16; ++row) rows[row * stride + 3] = x;
  for (int column = 0; column < 8; ++column) columns[column * stride + 3] = 1;
  float product = 0;
  emulated::run_grid(1, 32, 0, [&] {
    float a[8];
    float b[4];
    float d[4] = {};
    device::load_a(a, rows, stride);
    device::load_b(b, columns, stride);
    device::mma(d, a, b, float{});
    if (emulated::here().thread.x == 31) product = d[3];
  });
  return product;
}

}  // namespace

TEST_CASE("The gated delta rule fits into the shared memory that a block has") {
  struct SetBack {
    ~SetBack() { emulated::set_most_shared(emulated::shared_of_sm_90); }
  } set_back;
  const auto fits = [](std::size_t kib, std::int64_t keys, Type type) {
    emulated::set_most_shared(kib * 1024);
    return gated_delta_fits({1, 1, keys, 32}, type);
  };
  for (const std::int64_t keys : {64, 128}) {
    CHECK(fits(227, keys, Type::fp32));
    CHECK(fits(99, keys, Type::fp16));
    CHECK(fits(99, keys, Type::bf16));
    CHECK_FALSE(fits(99, keys, Type::fp32));
    CHECK_FALSE(fits(48, keys, Type::bf16));
  }
  CHECK(fits(163, 64, Type::fp32));
  CHECK_FALSE(fits(163, 128, Type::fp32));
  CHECK_FALSE(fits(227, 48, Type::fp32));  // not by chunks
}

TEST_CASE("The larger part of an fp32 number is the nearest of TF32") {
  const std::pair<std::uint32_t, std::uint32_t> cases[] = {
      {0x00000000, 0x00000000}, {0x80000000, 0x80000000}, {0x3f800000, 0x3f800000}, {0x3f800fff, 0x3f800000},
      {0x3f801000, 0x3f802000}, {0xbf801000, 0xbf802000}, {0x3f802fff, 0x3f802000}, {0x3f803000, 0x3f804000},
      {0x3fffffff, 0x40000000}, {0x00000fff, 0x00000000}, {0x00001000, 0x00002000}, {0x007fffff, 0x00800000},
      {0x7f7fdfff, 0x7f7fe000}, {0x7f7fefff, 0x7f7fe000}, {0x7f7ff000, 0x7f7fe000}, {0x7f7fffff, 0x7f7fe000},
      {0xff7fffff, 0xff7fe000}, {0x7f800000, 0x7f800000}, {0xff800000, 0xff800000}};
  for (const auto& [bits, high] : cases) {
    CAPTURE(bits);
    CHECK(parts_of(bits).high == high);
  }
}

TEST_CASE("The two parts of an fp32 number are the number but for its last bits") {
  std::uint32_t bits = 1;
  for (int i = 0; i < 20000; ++i) {
    bits = bits * 1664525U + 1013904223U;
    if (i < 4096) bits = 0x7f7fffffU - static_cast<std::uint32_t>(i) * 7;  // next to the largest
    const double x = device::float_of(bits);
    if (!std::isfinite(x) || std::abs(x) < 0x1p-100) continue;
    const auto [high, low] = parts_of(bits);
    const double both = static_cast<double>(device::float_of(high)) + device::float_of(low);
    CAPTURE(bits);
    REQUIRE((high & 0x1fffU) == 0);
    REQUIRE((low & 0x1fffU) == 0);
    REQUIRE(std::abs(both - x) <= 0x1p-22 * std::abs(x));
    REQUIRE(std::abs(both) <= largest);
  }
}

TEST_CASE("Products of fp32 numbers in two parts keep what is not finite, and what is") {
  for (const std::uint32_t bits : {0x7fffffffU, 0xffffffffU, 0x7fc00000U, 0xffc00000U, 0x7ffff000U, 0x7f800001U}) {
    CAPTURE(bits);
    CHECK(std::isnan(device::float_of(parts_of(bits).low)));
    CHECK_FALSE(std::isfinite(device::float_of(parts_of(bits).high)));
    CHECK(std::isnan(times_one(device::float_of(bits))));
  }
  CHECK_FALSE(std::isfinite(times_one(std::numeric_limits<float>::infinity())));
  CHECK_FALSE(std::isfinite(times_one(-std::numeric_limits<float>::infinity())));
  for (const float x : {largest, -largest, std::nextafter(largest, 0.0F), 0x1.ffep127F, 0x1.ffdffep127F, 1.0F / 3}) {
    CAPTURE(x);
    CHECK(std::abs(static_cast<double>(times_one(x)) - x) <= 0x1p-22 * std::abs(x));
  }
}
