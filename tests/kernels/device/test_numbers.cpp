// The narrow types' bits: a few known ones, and every number there and back.
#include "kernels/device/numbers.hpp"

#include <cmath>
#include <limits>

#include "tests/catch.hpp"

using namespace plumb::kernels;

TEST_CASE("Known numbers have the bits of bf16 and fp16") {
  CHECK(bf16_bits(1.0F) == 0x3f80);
  CHECK(bf16_bits(-2.0F) == 0xc000);
  CHECK(bf16_bits(1.00390625F) == 0x3f80);  // half way: to the even neighbour
  CHECK(bf16_bits(1.01171875F) == 0x3f82);
  CHECK(fp16_bits(1.0F) == 0x3c00);
  CHECK(fp16_bits(65504.0F) == 0x7bff);
  CHECK(fp16_bits(65519.9F) == 0x7bff);
  CHECK(fp16_bits(65520.0F) == 0x7c00);
  CHECK(fp16_bits(0x1p-24F) == 1);
  CHECK(fp16_bits(0x1p-25F) == 0);  // half way to 0, which is even
  CHECK(fp16_bits(-0x1.8p-24F) == 0x8002);
  CHECK(fp16_bits(2047.0F / 2048) == 0x3bff);
  CHECK(fp16_bits(4095.0F / 4096) == 0x3c00);  // the carry goes into the exponent
}

TEST_CASE("Every narrow number comes back from fp32, and lies between its neighbours") {
  bool all = true;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const float half = from_fp16_bits(b);
    const float brain = from_bf16_bits(b);
    all = all && (std::isnan(half) ? std::isnan(from_fp16_bits(fp16_bits(half))) : fp16_bits(half) == b);
    all = all && (std::isnan(brain) ? std::isnan(from_bf16_bits(bf16_bits(brain))) : bf16_bits(brain) == b);
  }
  CHECK(all);
}
