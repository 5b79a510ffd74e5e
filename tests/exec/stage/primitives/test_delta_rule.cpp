// The chunked gated delta rule against the recurrence over single steps, in fp64.
#include "exec/stage/primitives/delta_rule.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "kernels/gated_delta/gated_delta.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("The chunked gated delta rule is the recurrence") {
  const std::int64_t time = GENERATE(1, 5, 63, 64, 65, 130, 256);
  const std::int64_t chunk = GENERATE(16, 64);
  CAPTURE(time, chunk);
  const std::int64_t heads = 3;
  const std::int64_t key_dim = 8;
  const std::int64_t value_dim = 5;
  at::Generator generator = at::detail::createCPUGenerator(7);
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const auto normal = [&](std::int64_t last) { return at::randn({2, heads, time, last}, generator, wide); };
  const auto unit = [](const at::Tensor& x) {
    return (x / at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true)).contiguous();
  };
  const DeltaInput input{.query = unit(normal(key_dim)),
                         .key = unit(normal(key_dim)),
                         .value = normal(value_dim),
                         .beta = at::sigmoid(normal(1).squeeze(-1)).contiguous(),
                         .log_decay = -at::softplus(normal(1).squeeze(-1)).contiguous()};
  const at::Tensor output = delta_rule(input, chunk);
  at::Tensor expected = at::empty({2, heads, time, value_dim}, wide);
  kernels::gated_delta_reference({.sequences = 2 * heads, .time = time, .key_dim = key_dim, .value_dim = value_dim},
                                 {.query = input.query.const_data_ptr<double>(),
                                  .key = input.key.const_data_ptr<double>(),
                                  .value = input.value.const_data_ptr<double>(),
                                  .beta = input.beta.const_data_ptr<double>(),
                                  .log_decay = input.log_decay.const_data_ptr<double>()},
                                 expected.mutable_data_ptr<double>());
  REQUIRE(output.sizes() == expected.sizes());
  CHECK((output - expected).abs().max().item<double>() < 1e-12);

  // In two parts, whose border falls anywhere, with the state handed on.
  const std::int64_t first = time / 3;
  if (first == 0) return;
  const auto part = [&](std::int64_t from, std::int64_t count) {
    return DeltaInput{.query = input.query.narrow(2, from, count),
                      .key = input.key.narrow(2, from, count),
                      .value = input.value.narrow(2, from, count),
                      .beta = input.beta.narrow(2, from, count),
                      .log_decay = input.log_decay.narrow(2, from, count)};
  };
  at::Tensor state;
  const at::Tensor before = delta_rule(part(0, first), chunk, &state);
  REQUIRE(state.sizes() == at::IntArrayRef({2, heads, key_dim, value_dim}));
  const at::Tensor behind = delta_rule(part(first, time - first), chunk, &state);
  CHECK((at::cat({before, behind}, 2) - expected).abs().max().item<double>() < 1e-12);
}
