// RMSNorm's kernels against their fp64 reference, which test_against_aten.cpp compares with ATen.
#include "kernels/rms_norm.hpp"

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

// One row; a row of one; not a multiple of 16 bytes; held in registers (two widths); too long for that.
const std::vector<RmsNormShape> norm_shapes = {{1, 1}, {7, 13}, {5, 64}, {4, 2056}, {3, 8200}, {9, 100}};

std::size_t size_of(const RmsNormShape& shape) { return static_cast<std::size_t>(shape.rows * shape.columns); }

void check_forward(const RmsNormShape& shape, Type type, bool with_residual) {
  const Numbers x = rounded(type, made_up(size_of(shape), 1));
  const Numbers residual = rounded(type, made_up(size_of(shape), 2, 3));
  const Numbers weight = rounded(type, made_up(static_cast<std::size_t>(shape.columns), 3));
  Numbers sum = x;
  if (with_residual) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += residual[i];
    sum = rounded(type, sum);  // h is stored in the type, and what follows is of that
  }
  Numbers y(size_of(shape));
  Numbers inverse(static_cast<std::size_t>(shape.rows));
  rms_norm_forward_reference(shape,
                             {.x = sum.data(), .weight = weight.data(), .y = y.data(), .inverse_rms = inverse.data()});
  same_bits_each_way([&] {
    const Array in(type, x);
    const Array beside(type, residual);
    const Array scale(type, weight);
    const Array h(type, size_of(shape));
    const Array out(type, size_of(shape));
    const Array rms(Type::fp32, inverse.size());
    rms_norm_forward(shape, type,
                     {.x = in.data(),
                      .residual = with_residual ? beside.data() : nullptr,
                      .weight = scale.data(),
                      .h = with_residual ? h.data() : nullptr,
                      .y = out.data(),
                      .inverse_rms = rms.floats()},
                     {});
    if (with_residual) CHECK(h.read() == sum);
    CHECK(error_ratio(type, out.read(), y) <= most_error);
    CHECK(error_ratio(Type::fp32, rms.read(), inverse) <= most_error);
    return out.raw() + rms.raw();
  });
}

void check_backward(const RmsNormShape& shape, Type type, bool beside) {
  const Numbers dy = rounded(type, made_up(size_of(shape), 4));
  const Numbers h = rounded(type, made_up(size_of(shape), 5, 2));
  const Numbers weight = rounded(type, made_up(static_cast<std::size_t>(shape.columns), 6));
  const Numbers dh = rounded(type, made_up(size_of(shape), 7, 0.5));
  const Numbers inverse = rounded(Type::fp32, made_up(static_cast<std::size_t>(shape.rows), 8));
  const Numbers before = rounded(Type::fp32, made_up(static_cast<std::size_t>(shape.columns), 9));
  Numbers dx(size_of(shape));
  Numbers dweight(before.size());
  rms_norm_input_gradient_reference(shape, {.dy = dy.data(),
                                            .h = h.data(),
                                            .weight = weight.data(),
                                            .inverse_rms = inverse.data(),
                                            .dh = beside ? dh.data() : nullptr,
                                            .dx = dx.data(),
                                            .parts = dweight.data()});
  for (std::size_t i = 0; i < before.size(); ++i) dweight[i] += before[i];
  same_bits_each_way([&] {
    const Array dys(type, dy);
    const Array hs(type, h);
    const Array weights(type, weight);
    const Array out(type, dh);  // in place
    const Array rms(Type::fp32, inverse);
    const std::int64_t count = rms_norm_part_count(shape);
    const Array parts(Type::fp32, static_cast<std::size_t>(count * shape.columns));
    const Array gradient(Type::fp32, before);
    rms_norm_input_gradient(shape, type,
                            {.dy = dys.data(),
                             .h = hs.data(),
                             .weight = weights.data(),
                             .inverse_rms = rms.floats(),
                             .dh = beside ? out.data() : nullptr,
                             .dx = out.data(),
                             .parts = parts.floats()},
                            {});
    rms_norm_weight_gradient(shape.columns, count, parts.floats(), gradient.floats(), {});
    CHECK(error_ratio(type, out.read(), dx) <= most_error);
    CHECK(error_ratio(Type::fp32, gradient.read(), dweight) <= most_error);
    return out.raw() + gradient.raw();
  });
}

}  // namespace

TEST_CASE("RMSNorm forward is as near to fp64 as its type allows") {
  need_device();
  for (const Type type : all_types) {
    for (const RmsNormShape& shape : norm_shapes) {
      INFO(shape.rows << " x " << shape.columns << ", type " << static_cast<int>(type));
      check_forward(shape, type, false);
      check_forward(shape, type, true);
    }
  }
}

TEST_CASE("RMSNorm backward is as near to fp64 as its type allows") {
  need_device();
  for (const Type type : all_types) {
    for (const RmsNormShape& shape : norm_shapes) {
      INFO(shape.rows << " x " << shape.columns << ", type " << static_cast<int>(type));
      if (shape.columns == 1) continue;  // dx is the difference of two equal numbers
      check_backward(shape, type, false);
      check_backward(shape, type, true);
    }
  }
}

TEST_CASE("RMSNorm refuses a residual without a place for the sum, and no columns") {
  need_device();
  const float one = 1;
  CHECK_THROWS_AS(rms_norm_forward({.rows = 1, .columns = 1}, Type::fp32, {.x = &one, .residual = &one}, {}),
                  std::invalid_argument);
  CHECK_THROWS_AS(rms_norm_forward({.rows = 1, .columns = 0}, Type::fp32, {}, {}), std::invalid_argument);
}
