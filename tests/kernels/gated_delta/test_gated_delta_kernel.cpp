// The gated delta rule's kernels against the recurrence in fp64.
#include <utility>
#include "kernels/gated_delta/gated_delta.hpp"

#include "tests/catch.hpp"
#include "tests/effort.hpp"
#include "tests/kernels/arrays.hpp"
#include "tests/kernels/gated_delta_case.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

Numbers by_recurrence(const DeltaCase& c, const double* first_state = nullptr) {
  Numbers output(c.value.size());
  GatedDeltaInput input = input_of(c);
  input.first_state = first_state;
  gated_delta_reference(c.shape, input, output.data());
  return output;
}

struct KernelResult {
  Numbers output;
  Bytes raw;
};

KernelResult by_kernel(const DeltaCase& c, Type type, const float* first_state = nullptr, float* last_state = nullptr) {
  const Array query(type, c.query), key(type, c.key), value(type, c.value);
  const Array beta(Type::fp32, c.beta), log_decay(Type::fp32, c.log_decay);
  const Array output(type, c.value.size());
  gated_delta_forward(c.shape, type,
                      {.query = query.data(),
                       .key = key.data(),
                       .value = value.data(),
                       .beta = beta.floats(),
                       .log_decay = log_decay.floats(),
                       .first_state = first_state,
                       .output = output.data(),
                       .last_state = last_state},
                      {});
  return {output.read(), output.raw()};
}

}  // namespace

TEST_CASE("The gated delta rule step by step is as near to fp64 as its type allows") {
  need_device();
  const std::vector<GatedDeltaShape> shapes = {{1, 1, 1, 1}, {2, 5, 7, 3}, {1, 70, 40, 33}, {2, 20, 200, 40}};
  for (const Type type : all_types) {
    for (const GatedDeltaShape& shape : shapes) {
      INFO(shape.time << " steps, keys " << shape.key_dim << ", values " << shape.value_dim);
      const DeltaCase c = make_case(type, shape);
      const Numbers exact = by_recurrence(c);
      same_bits_each_way([&] {
        const KernelResult found = by_kernel(c, type);
        CHECK(error_ratio(type, found.output, exact) <= most_error);
        return found.raw;
      });
    }
  }
}

// The operands of the chunks' products are rounded to the type, each a source of one rounding's size: not one rounding
// of the result, but a few of them. Those of fp32 are not.
TEST_CASE("The gated delta rule by chunks is within four roundings of fp64") {
  need_device();
  // One step; a chunk and one less and more; several, with two blocks of values.
  const std::vector<GatedDeltaShape> shapes = {{1, 1, 64, 32},   {1, 63, 64, 32},   {2, 64, 128, 32},
                                               {1, 65, 128, 32}, {1, 130, 128, 64}, {1, 130, 64, 96}};
  std::size_t tried = 0;
  for (const Type type : all_types) {
    for (const GatedDeltaShape& shape : shapes) {
      if (!plumb::testing::tries(tried++) || !gated_delta_fits(shape, type)) continue;  // on this device
      INFO(shape.time << " steps, keys " << shape.key_dim << ", values " << shape.value_dim);
      const DeltaCase c = make_case(type, shape);
      const Numbers exact = by_recurrence(c);
      same_bits_each_way([&] {
        const KernelResult found = by_kernel(c, type);
        CHECK(error_ratio(type, found.output, exact) <= (type == Type::fp32 ? most_error : 4));
        return found.raw;
      });
    }
  }
}

TEST_CASE("The gated delta rule goes on from a state that it left") {
  need_device();
  const std::pair<GatedDeltaShape, Type> cases[] = {
      {{2, 192, 64, 32}, Type::bf16}, {{2, 192, 64, 32}, Type::fp32}, {{2, 30, 20, 8}, Type::fp32}};
  for (const auto& [whole, type] : cases) {
    if (gated_delta_goes_by_chunks(whole) && !gated_delta_fits(whole, type)) continue;  // on this device
    const DeltaCase c = make_case(type, whole);
    const KernelResult at_once = by_kernel(c, type);
    const std::int64_t first_steps = whole.time / 3;  // a whole chunk
    Numbers output(c.value.size());
    const auto states = static_cast<std::size_t>(whole.sequences * whole.key_dim * whole.value_dim);
    const Array state(Type::fp32, Numbers(states, 0.0));
    for (const bool later : {false, true}) {
      DeltaCase part = {
          {whole.sequences, later ? whole.time - first_steps : first_steps, whole.key_dim, whole.value_dim},
          {},
          {},
          {},
          {},
          {}};
      const auto cut = [&](const Numbers& from, std::int64_t width, Numbers& to) {
        for (std::int64_t s = 0; s < whole.sequences; ++s) {
          const auto begin = from.begin() + (s * whole.time + (later ? first_steps : 0)) * width;
          to.insert(to.end(), begin, begin + part.shape.time * width);
        }
      };
      cut(c.query, whole.key_dim, part.query);
      cut(c.key, whole.key_dim, part.key);
      cut(c.value, whole.value_dim, part.value);
      cut(c.beta, 1, part.beta);
      cut(c.log_decay, 1, part.log_decay);
      const Numbers found = by_kernel(part, type, later ? state.floats() : nullptr, state.floats()).output;
      for (std::int64_t s = 0; s < whole.sequences; ++s) {
        const std::int64_t size = part.shape.time * whole.value_dim;
        std::copy(found.begin() + s * size, found.begin() + (s + 1) * size,
                  output.begin() + (s * whole.time + (later ? first_steps : 0)) * whole.value_dim);
      }
    }
    CHECK(output == at_once.output);  // to the bit
  }
}

TEST_CASE("A NaN or infinity given to the gated delta rule in fp32 reaches all that depends on it") {
  need_device();
  const GatedDeltaShape shape = {4, 5, 64, 32};
  if (!gated_delta_fits(shape, Type::fp32)) return;  // on this device
  const DeltaCase clean = make_case(Type::fp32, shape);
  const Numbers state = rounded(Type::fp32, made_up(std::size_t{4 * 64 * 32}, 8, 0.3));
  for (const int place : {0, 1, 2, 3}) {
    CAPTURE(place);
    DeltaCase c = clean;
    Numbers first = state;
    Numbers* const places[] = {&c.query, &c.key, &c.value, &first};
    poison(*places[place]);
    const Numbers exact = by_recurrence(c, first.data());
    REQUIRE(poisoned(exact));
    const Array from(Type::fp32, first), last(Type::fp32, first.size());
    CHECK(hidden_poison(by_kernel(c, Type::fp32, from.floats(), last.floats()).output, exact) == 0);
    const Numbers left = last.read();
    for (std::ptrdiff_t i = 0; i < 4; ++i) {  // the state sees no query
      const auto begin = left.begin() + i * 64 * 32;
      CHECK(poisoned(Numbers(begin, begin + std::ptrdiff_t{64 * 32})) == (place > 0));
    }
  }
}
