// Attention by products of matrices against LibTorch's fused one, in fp64: two ways to the same numbers.
#include "exec/stage/attention_core.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <limits>

#include "tests/catch.hpp"

using namespace plumb::exec;

namespace {

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

at::Tensor drawn(std::int64_t tokens, std::uint64_t seed) {
  return at::randn({2, 3, tokens, 8}, at::detail::createCPUGenerator(seed), at::kDouble);
}

}  // namespace

TEST_CASE("attention by products equals the fused one, forward and backward") {
  const at::Tensor query = drawn(12, 1);
  const at::Tensor output_gradient = drawn(12, 2);
  const AttentionView views[] = {{}, {.causal = true}, {.mask = at::zeros({12, 12}, at::kDouble).add_(1.5).triu_()}};
  for (const AttentionView& view : views) {
    const at::Tensor key = drawn(12, 3);
    const at::Tensor value = drawn(12, 4);
    const Attended fused = attend(query, key, value, view);
    const Attended made = attend_by_products(query, key, value, view);
    CHECK(distance(fused.out, made.out) < 1e-12);
    CHECK(distance(fused.log_sum, made.log_sum) < 1e-12);
    const AttentionGradients expected = attend_backward(output_gradient, query, key, value, fused, view);
    const AttentionGradients got = attend_by_products_backward(output_gradient, query, key, value, made, view);
    CHECK(distance(expected.query, got.query) < 1e-12);
    CHECK(distance(expected.key, got.key) < 1e-12);
    CHECK(distance(expected.value, got.value) < 1e-12);
  }
}

TEST_CASE("keys that a mask hides have no part in attention by products") {
  const at::Tensor query = drawn(6, 1);
  const at::Tensor key = drawn(9, 2);
  const at::Tensor value = drawn(9, 3);
  at::Tensor mask = at::zeros({6, 9}, at::kDouble);
  mask.narrow(1, 5, 4).fill_(-std::numeric_limits<double>::infinity());
  const Attended hidden = attend_by_products(query, key, value, {.mask = mask});
  const Attended fewer = attend_by_products(query, key.narrow(2, 0, 5), value.narrow(2, 0, 5), {});
  CHECK(distance(hidden.out, fewer.out) < 1e-14);
  const AttentionGradients gradients =
      attend_by_products_backward(drawn(6, 4), query, key, value, hidden, {.mask = mask});
  CHECK(gradients.key.narrow(2, 5, 4).abs().max().item<double>() == 0);
  CHECK(gradients.value.narrow(2, 5, 4).abs().max().item<double>() == 0);
}
