// Attention by products of matrices against LibTorch's fused one, in fp64: two ways to the same numbers.
#include "exec/stage/primitives/attention_core.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <cmath>

#include "tests/catch.hpp"

using namespace plumb::exec;

namespace {

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

at::Tensor drawn(std::int64_t tokens, std::int64_t heads, std::uint64_t seed) {
  return at::randn({2, tokens, heads, 8}, at::detail::createCPUGenerator(seed), at::kDouble);
}

}  // namespace

TEST_CASE("attention by products equals the fused one, forward and backward, of grouped queries too") {
  const at::Tensor query = drawn(12, 6, 1);
  const at::Tensor output_gradient = drawn(12, 6, 2);
  for (const std::int64_t kv_heads : {6, 2}) {
    const at::Tensor key = drawn(12, kv_heads, 3);
    const at::Tensor value = drawn(12, kv_heads, 4);
    for (const Sight& sight : {Sight{}, Sight{.causal = true}, Sight{.causal = true, .window = 5}}) {
      const AttentionView view = view_of(sight, 12, 12, query);
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
}

TEST_CASE("a view hides the keys that are out of a query's sight, and asks for a mask only where some are") {
  const at::Tensor x = at::empty({8}, at::kDouble);
  for (const auto& [ahead, queries, keys, window] :
       {std::array<std::int64_t, 4>{0, 5, 5, 2}, {0, 5, 5, 9}, {3, 4, 3, 5}, {7, 4, 3, 99}, {2, 2, 4, 4}}) {
    CAPTURE(ahead, queries, keys, window);
    const AttentionView view = view_of({.causal = true, .ahead = ahead, .window = window}, queries, keys, x);
    bool all = true;
    bool triangle = ahead == 0 && queries == keys;
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t apart = ahead + i - j;
        const bool is_seen = apart >= 0 && apart < window;
        all = all && is_seen;
        triangle = triangle && is_seen == (j <= i);
        if (view.mask) CHECK((*view.mask)[i][j].item<double>() == (is_seen ? 0.0 : -HUGE_VAL));
      }
    }
    CHECK(view.mask.has_value() == !(all || triangle));
    CHECK(view.sight.causal == !all);
  }
}

TEST_CASE("keys that a mask hides have no part in attention by products") {
  const at::Tensor query = drawn(3, 3, 1);
  const at::Tensor key = drawn(9, 3, 2);
  const at::Tensor value = drawn(9, 3, 3);
  const AttentionView view = view_of({.causal = true, .ahead = 8, .window = 4}, 3, 9, query);  // none of the first five
  const Attended hidden = attend_by_products(query, key, value, view);
  const AttentionView of_last = view_of({.causal = true, .ahead = 3, .window = 4}, 3, 4, query);
  const Attended fewer = attend_by_products(query, key.narrow(1, 5, 4), value.narrow(1, 5, 4), of_last);
  CHECK(distance(hidden.out, fewer.out) < 1e-14);
  const AttentionGradients gradients = attend_by_products_backward(drawn(3, 3, 4), query, key, value, hidden, view);
  CHECK(gradients.key.narrow(1, 0, 5).abs().max().item<double>() == 0);
  CHECK(gradients.value.narrow(1, 0, 5).abs().max().item<double>() == 0);
}
