// The gated delta rule's backward kernels against the derivative of the recurrence in fp64.
#include "kernels/gated_delta/gated_delta.hpp"
#include "tests/catch.hpp"
#include "tests/effort.hpp"
#include "tests/kernels/arrays.hpp"
#include "tests/kernels/gated_delta_case.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

struct Gradients {
  Numbers query, key, value, beta, log_decay, first_state;
};

// From a state, and into one whose gradient is known, or neither.
struct Problem {
  DeltaCase given;
  Numbers first_state, doutput, dlast_state;
};

Problem make_problem(Type type, const GatedDeltaShape& shape, bool states) {
  Problem p = {.given = make_case(type, shape), .first_state = {}, .doutput = {}, .dlast_state = {}};
  p.doutput = rounded(type, made_up(p.given.value.size(), 7));
  if (!states) return p;
  const auto size = static_cast<std::size_t>(shape.sequences * shape.key_dim * shape.value_dim);
  p.first_state = rounded(Type::fp32, made_up(size, 8, 0.3));
  p.dlast_state = rounded(Type::fp32, made_up(size, 9, 0.3));
  return p;
}

const double* of(const Numbers& numbers) { return numbers.empty() ? nullptr : numbers.data(); }

Gradients by_recurrence(const Problem& p) {
  const DeltaCase& c = p.given;
  Gradients g = {.query = Numbers(c.query.size()),
                 .key = Numbers(c.key.size()),
                 .value = Numbers(c.value.size()),
                 .beta = Numbers(c.beta.size()),
                 .log_decay = Numbers(c.beta.size()),
                 .first_state = Numbers(p.first_state.size())};
  GatedDeltaInput input = input_of(c);
  input.first_state = of(p.first_state);
  gated_delta_backward_reference(c.shape, input,
                                 {.output = p.doutput.data(),
                                  .last_state = of(p.dlast_state),
                                  .query = g.query.data(),
                                  .key = g.key.data(),
                                  .value = g.value.data(),
                                  .beta = g.beta.data(),
                                  .log_decay = g.log_decay.data(),
                                  .first_state = p.first_state.empty() ? nullptr : g.first_state.data()});
  return g;
}

struct Result {
  Gradients gradients;
  Bytes raw;
};

Result by_kernels(const Problem& p, Type type) {
  const DeltaCase& c = p.given;
  const bool states = !p.first_state.empty();
  const Array query(type, c.query), key(type, c.key), value(type, c.value), doutput(type, p.doutput);
  const Array beta(Type::fp32, c.beta), log_decay(Type::fp32, c.log_decay);
  const Array first(Type::fp32, p.first_state), dlast(Type::fp32, p.dlast_state);
  const Array dquery(type, c.query.size()), dkey(type, c.key.size()), dvalue(type, c.value.size());
  const Array dbeta(Type::fp32, c.beta.size()), dlog_decay(Type::fp32, c.beta.size());
  const Array dfirst(Type::fp32, p.first_state.size());
  const Array workspace(type, static_cast<std::size_t>(gated_delta_workspace(c.shape, type)) / bytes_of(type));
  gated_delta_backward(c.shape, type,
                       {.query = query.data(),
                        .key = key.data(),
                        .value = value.data(),
                        .beta = beta.floats(),
                        .log_decay = log_decay.floats(),
                        .first_state = states ? first.floats() : nullptr,
                        .doutput = doutput.data(),
                        .dlast_state = states ? dlast.floats() : nullptr,
                        .dquery = dquery.data(),
                        .dkey = dkey.data(),
                        .dvalue = dvalue.data(),
                        .dbeta = dbeta.floats(),
                        .dlog_decay = dlog_decay.floats(),
                        .dfirst_state = states ? dfirst.floats() : nullptr,
                        .workspace = workspace.data()},
                       {});
  return {{dquery.read(), dkey.read(), dvalue.read(), dbeta.read(), dlog_decay.read(), dfirst.read()},
          dquery.raw() + dkey.raw() + dvalue.raw() + dbeta.raw() + dlog_decay.raw() + dfirst.raw()};
}

}  // namespace

// As of the forward pass: every operand of the products is rounded to the type, and states and their gradients pass
// through several chunks. All gradients are measured by the type, those in fp32 as well: their operands have it. Of
// fp32 no operand is rounded, but log_decay's gradient is a sum of larger numbers that cancel.
TEST_CASE("The gated delta rule's backward pass by chunks is within a few roundings of fp64") {
  need_device();
  const std::vector<GatedDeltaShape> shapes = {{1, 1, 64, 32}, {1, 63, 64, 32}, {2, 64, 128, 32}, {1, 130, 64, 64}};
  std::size_t tried = 0;
  for (const Type type : all_types) {
    for (const GatedDeltaShape& shape : shapes) {
      for (const bool states : {false, true}) {
        if (!plumb::testing::tries(tried++)) continue;
        if (!gated_delta_fits(shape, type)) continue;  // on this device
        if (type == Type::fp32 && !states) continue;   // the emulation's six products for one take their time
        INFO(shape.time << " steps, keys " << shape.key_dim << ", values " << shape.value_dim << ", states " << states);
        // Of one step a gradient is one sum over the values, or one such number times a vector: what cancels in it is
        // not outweighed by other steps.
        const double of_decay = shape.time == 1 ? 32 : 4;
        const double most = type == Type::fp32 ? most_error : of_decay;
        const Problem p = make_problem(type, shape, states);
        const Gradients exact = by_recurrence(p);
        same_bits_each_way([&] {
          const Result found = by_kernels(p, type);
          CHECK(error_ratio(type, found.gradients.query, exact.query) <= most);
          CHECK(error_ratio(type, found.gradients.key, exact.key) <= most);
          CHECK(error_ratio(type, found.gradients.value, exact.value) <= most);
          CHECK(error_ratio(type, found.gradients.beta, exact.beta) <= most);
          CHECK(error_ratio(type, found.gradients.log_decay, exact.log_decay) <= of_decay);
          CHECK(error_ratio(type, found.gradients.first_state, exact.first_state) <= most);
          return found.raw;
        });
      }
    }
  }
}

TEST_CASE("A NaN or infinity given to the gated delta rule in fp32 reaches all gradients that depend on it") {
  need_device();
  const Problem clean = make_problem(Type::fp32, {4, 5, 64, 32}, true);
  if (!gated_delta_fits(clean.given.shape, Type::fp32)) return;  // on this device
  for (const int place : {0, 1, 2, 3, 4, 5}) {
    CAPTURE(place);
    Problem p = clean;
    Numbers* const places[] = {&p.given.query, &p.given.key, &p.given.value,
                               &p.first_state, &p.doutput,   &p.dlast_state};
    poison(*places[place]);
    const Gradients exact = by_recurrence(p);
    REQUIRE(poisoned(exact.key));
    const Gradients found = by_kernels(p, Type::fp32).gradients;
    CHECK(hidden_poison(found.query, exact.query) == 0);
    CHECK(hidden_poison(found.key, exact.key) == 0);
    CHECK(hidden_poison(found.value, exact.value) == 0);
    CHECK(hidden_poison(found.beta, exact.beta) == 0);
    CHECK(hidden_poison(found.log_decay, exact.log_decay) == 0);
    CHECK(hidden_poison(found.first_state, exact.first_state) == 0);
  }
}

TEST_CASE("The gated delta rule's backward pass refuses what does not go by chunks") {
  need_device();
  CHECK_THROWS_AS(gated_delta_backward({1, 64, 40, 32}, Type::fp32, {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(gated_delta_backward({1, 64, 48, 32}, Type::bf16, {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(gated_delta_backward({1, 64, 64, 40}, Type::bf16, {}, {}), std::invalid_argument);
}
