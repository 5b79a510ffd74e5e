// SwiGLU's kernels against their fp64 reference, which test_against_aten.cpp compares with ATen.
#include "kernels/swiglu.hpp"

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

// One element; odd; whole packs; halves of one array; an odd number of rows of more than one block of columns.
const std::vector<SwigluShape> swiglu_shapes = {{1, 1, 1}, {3, 13, 13}, {4, 64, 64}, {5, 24, 48}, {3, 2064, 2064}};

}  // namespace

TEST_CASE("SwiGLU is as near to fp64 as its type allows, forward and backward") {
  need_device();
  for (const Type type : all_types) {
    for (const SwigluShape& shape : swiglu_shapes) {
      INFO(shape.rows << " x " << shape.columns << ", type " << static_cast<int>(type));
      const auto wide = static_cast<std::size_t>(shape.rows * shape.stride);
      const auto size = static_cast<std::size_t>(shape.rows * shape.columns);
      Numbers gate = rounded(type, made_up(wide, 1, 6));
      gate[0] = 0;
      if (gate.size() > 8) gate[7] = -200;  // its exponential is infinite in fp32
      const Numbers up = rounded(type, made_up(wide, 2));
      const Numbers dy = rounded(type, made_up(size, 3));
      Numbers y(size);
      Numbers dgate(wide);
      Numbers dup(wide);
      swiglu_forward_reference(shape, {.gate = gate.data(), .up = up.data(), .y = y.data()});
      swiglu_backward_reference(
          shape, {.dy = dy.data(), .gate = gate.data(), .up = up.data(), .dgate = dgate.data(), .dup = dup.data()});
      same_bits_each_way([&] {
        const Array gates(type, gate);
        const Array ups(type, up);
        const Array dys(type, dy);
        const Array out(type, size);
        const Array dgates(type, Numbers(wide, 0.0));
        const Array dups(type, Numbers(wide, 0.0));
        swiglu_forward(shape, type, {.gate = gates.data(), .up = ups.data(), .y = out.data()}, {});
        swiglu_backward(
            shape, type,
            {.dy = dys.data(), .gate = gates.data(), .up = ups.data(), .dgate = dgates.data(), .dup = dups.data()}, {});
        CHECK(error_ratio(type, out.read(), y) <= most_error);
        CHECK(error_ratio(type, dgates.read(), dgate) <= most_error);
        CHECK(error_ratio(type, dups.read(), dup) <= most_error);
        return out.raw() + dgates.raw() + dups.raw();
      });
    }
  }
}
