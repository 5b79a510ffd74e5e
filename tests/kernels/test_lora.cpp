// LoRA's passes against their fp64 references, which test_against_aten.cpp compares with ATen.
#include "kernels/lora.hpp"

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

// One of each; odd sizes; ranks around the tensor cores' 8 and 16; rows with room for z; more rows than a block.
const std::vector<LoraShape> shapes = {{1, 1, 1, 1, 1},         {5, 13, 3, 13, 3},       {33, 40, 8, 40, 8},
                                       {70, 264, 16, 280, 280}, {20, 520, 64, 520, 64},  {16, 64, 20, 64, 24},
                                       {300, 72, 32, 72, 32},   {37, 1096, 24, 1104, 24}};

std::size_t of(std::int64_t rows, std::int64_t stride) { return static_cast<std::size_t>(rows * stride); }

}  // namespace

TEST_CASE("LoRA's passes are as near to fp64 as their type allows") {
  need_device();
  for (const Type type : all_types) {
    for (const LoraShape& shape : shapes) {
      INFO(shape.tokens << " x " << shape.columns << ", rank " << shape.rank << ", type " << static_cast<int>(type));
      const Numbers x = rounded(type, made_up(of(shape.tokens, shape.x_stride), 1));
      const Numbers factor = rounded(type, made_up(of(shape.rank, shape.columns), 2));
      const Numbers z = rounded(type, made_up(of(shape.tokens, shape.z_stride), 3));
      const Numbers before = rounded(Type::fp32, made_up(factor.size(), 4));
      Numbers projected = z;  // what lies between the rows stays
      Numbers sum = x;
      Numbers gradient = before;
      lora_project_reference(shape, {.x = x.data(), .factor = factor.data(), .z = projected.data(), .scale = 0.3});
      lora_add_reference(shape, {.z = z.data(), .factor = factor.data(), .x = sum.data()});
      lora_gradient_reference(shape, {.z = z.data(), .x = x.data(), .gradient = gradient.data()});
      same_bits_each_way([&] {
        const Array xs(type, x);
        const Array factors(type, factor);
        const Array zs(type, z);
        const Array out(type, z);
        const Array gradients(Type::fp32, before);
        const Array parts(Type::fp32, factor.size() * static_cast<std::size_t>(lora_part_count(shape)));
        lora_project(shape, type, {.x = xs.data(), .factor = factors.data(), .z = out.data(), .scale = 0.3}, {});
        lora_gradient(shape, type,
                      {.z = zs.data(), .x = xs.data(), .parts = parts.floats(), .gradient = gradients.floats()}, {});
        lora_add(shape, type, {.z = zs.data(), .factor = factors.data(), .x = xs.data()}, {});
        CHECK(error_ratio(type, out.read(), projected) <= most_error);
        CHECK(error_ratio(type, xs.read(), sum) <= most_error);
        CHECK(error_ratio(Type::fp32, gradients.read(), gradient) <= most_error);
        return out.raw() + xs.raw() + gradients.raw();
      });
    }
  }
}

TEST_CASE("LoRA's one pass for dz and dB is as near to fp64 as its two, and its parts add up") {
  need_device();
  for (const Type type : all_types) {
    for (const LoraShape& shape : shapes) {
      INFO(shape.tokens << " x " << shape.columns << ", rank " << shape.rank << ", type " << static_cast<int>(type));
      const Numbers dy = rounded(type, made_up(of(shape.tokens, shape.x_stride), 5));
      const Numbers factor = rounded(type, made_up(of(shape.rank, shape.columns), 6));
      const Numbers z = rounded(type, made_up(of(shape.tokens, shape.z_stride), 7));
      const Numbers before = rounded(Type::fp32, made_up(factor.size(), 8));
      Numbers dz = z;  // what lies between the rows stays
      Numbers gradient(factor.size());
      lora_backward_reference(shape, {.x = dy.data(),
                                      .factor = factor.data(),
                                      .z = z.data(),
                                      .dz = dz.data(),
                                      .parts = gradient.data(),
                                      .scale = 0.3});
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += before[i];
      same_bits_each_way([&] {
        const Array dys(type, dy);
        const Array factors(type, factor);
        const Array zs(type, z);
        const Array out(type, z);
        const Array gradients(Type::fp32, before);
        const std::int64_t count = lora_part_count(shape);
        const Array parts(Type::fp32, factor.size() * static_cast<std::size_t>(count));
        const Array workspace(Type::fp32, static_cast<std::size_t>(lora_backward_workspace(shape)));
        lora_backward(shape, type,
                      {.x = dys.data(),
                       .factor = factors.data(),
                       .z = zs.data(),
                       .dz = out.data(),
                       .parts = parts.floats(),
                       .workspace = workspace.floats(),
                       .scale = 0.3},
                      {});
        lora_add_parts(shape.rank * shape.columns, count, parts.floats(), gradients.floats(), {});
        CHECK(error_ratio(type, out.read(), dz) <= most_error);
        CHECK(error_ratio(Type::fp32, gradients.read(), gradient) <= most_error);
        return out.raw() + gradients.raw();
      });
    }
  }
}

TEST_CASE("LoRA's passes together are the derivative of y = x W + s x At B") {
  // One token, one column, rank one: y = s x a b, so dx = s dy a b, da = s x dy b, db = s x a dy.
  const LoraShape one = {1, 1, 1, 1, 1};
  const double x = 3, a = 5, b = 7, dy = 11, s = 0.5;
  double z = 0, y = 0, dz = 0, dx = 0, da = 0, db = 0;
  lora_project_reference(one, {.x = &x, .factor = &a, .z = &z, .scale = s});
  lora_add_reference(one, {.z = &z, .factor = &b, .x = &y});
  lora_project_reference(one, {.x = &dy, .factor = &b, .z = &dz, .scale = s});
  lora_add_reference(one, {.z = &dz, .factor = &a, .x = &dx});
  lora_gradient_reference(one, {.z = &dz, .x = &x, .gradient = &da});
  lora_gradient_reference(one, {.z = &z, .x = &dy, .gradient = &db});
  CHECK(y == s * x * a * b);
  CHECK(dx == s * dy * a * b);
  CHECK(da == s * x * dy * b);
  CHECK(db == s * x * a * dy);
}

TEST_CASE("LoRA refuses a rank above 64") {
  need_device();
  CHECK_THROWS_AS(
      lora_project({.tokens = 1, .columns = 8, .rank = 65, .x_stride = 8, .z_stride = 65}, Type::fp32, {}, {}),
      std::invalid_argument);
}
