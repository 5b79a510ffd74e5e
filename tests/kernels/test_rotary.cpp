// The rotary kernel against its fp64 reference, which test_against_aten.cpp compares with ATen.
#include "kernels/rotary.hpp"

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

// One pair; odd sizes with a part that stays; whole packs; more packs than threads; rows with room behind them.
const std::vector<RotaryShape> rotary_shapes = {
    {1, 1, 1, 2, 1, 2, 2},       {5, 3, 3, 7, 3, 21, 21},         {4, 4, 2, 64, 32, 128, 128},
    {6, 3, 5, 96, 32, 480, 480}, {2, 2, 40, 128, 64, 5120, 5120}, {3, 3, 2, 32, 16, 64, 192},
};

}  // namespace

TEST_CASE("Rotary positions are as near to fp64 as their type allows, in place and back") {
  need_device();
  for (const Type type : all_types) {
    for (RotaryShape shape : rotary_shapes) {
      for (const bool interleaved : {false, true}) {
        shape.interleaved = interleaved;
        INFO(shape.tokens << " x " << shape.heads << " x " << shape.size << ", type " << static_cast<int>(type));
        const Numbers x = rounded(type, made_up(static_cast<std::size_t>(shape.tokens * shape.x_stride), 1));
        const auto angles = static_cast<std::size_t>(shape.time * shape.half);
        const Numbers angle = made_up(angles, 2, 3);
        Numbers cosine(angles);
        Numbers sine(angles);
        for (std::size_t i = 0; i < angles; ++i) {
          cosine[i] = rounded(Type::fp32, std::cos(angle[i]));
          sine[i] = rounded(Type::fp32, std::sin(angle[i]));
        }
        for (const bool backwards : {false, true}) {
          Numbers y(static_cast<std::size_t>(shape.tokens * shape.y_stride));
          rotary_reference(
              shape,
              {.x = x.data(), .cosine = cosine.data(), .sine = sine.data(), .y = y.data(), .backwards = backwards});
          same_bits_each_way([&] {
            const bool in_place = shape.x_stride == shape.y_stride;
            const Array in(type, x);
            const Array cosines(Type::fp32, cosine);
            const Array sines(Type::fp32, sine);
            const Array apart(type, Numbers(y.size(), 0.0));
            const Array& out = in_place ? in : apart;
            rotary(shape, type,
                   {.x = in.data(),
                    .cosine = cosines.floats(),
                    .sine = sines.floats(),
                    .y = out.data(),
                    .backwards = backwards},
                   {});
            CHECK(error_ratio(type, out.read(), y) <= most_error);
            return out.raw();
          });
        }
      }
    }
  }
}
