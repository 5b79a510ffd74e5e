// Attention by FlashAttention, as on a GPU: windows, grouped queries, and slices that see earlier ones' keys.
#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "exec/stage/primitives/functions.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/flash_on_host.hpp"
#include "tests/exec/stage/kernel_problem.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

// By what the window says, in plain operations: queries are the last of the keys.
at::Tensor plain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           std::int64_t window) {
  const std::int64_t groups = query.size(2) / key.size(2);
  const auto heads = [&](const at::Tensor& x) { return x.repeat_interleave(groups, 2).transpose(1, 2); };
  const std::int64_t before = key.size(1) - query.size(1);
  const at::Tensor apart = at::arange(query.size(1)).unsqueeze(1) + before - at::arange(key.size(1)).unsqueeze(0);
  const at::Tensor hidden = apart.lt(0).logical_or(apart.ge(window));
  const at::Tensor score = (at::matmul(query.transpose(1, 2), heads(key).transpose(-1, -2)) / 4)
                               .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(score, -1), heads(value)).transpose(1, 2);
}

constexpr at::ScalarType narrow_types[] = {at::kHalf, at::kBFloat16};

}  // namespace

TEST_CASE("Softmax attention by FlashAttention: causal and in windows, with fewer heads of keys") {
  for (const std::int64_t window : {99, 12, 5, 2}) {
    for (const at::ScalarType type : narrow_types) {
      CAPTURE(window);
      const FlashCalls before = flash_calls();
      require_as_near_as_aten(
          {.inputs = {drawn({2, 12, 6, 16}, 1), drawn({2, 12, 3, 16}, 2), drawn({2, 12, 3, 16}, 3)},
           .weights = {},
           .plain = [&](const Tensors& x,
                        const Tensors&) { return Tensors{plain_attention(x[0], x[1], x[2], window)}; },
           .ours =
               [&](const Tensors& x, const Weights&, const WeightQueuePtr&) {
                 return Tensors{softmax_attention(x[0], x[1], x[2], {.causal = true, .window = window})};
               }},
          type);
      CHECK(flash_calls().forward == before.forward + 1);
      CHECK(flash_calls().backward == before.backward + 1);
    }
  }
}

TEST_CASE("A view for FlashAttention has no mask") {
  const KernelTable table = emulated_kernels();
  const KernelsOnHost kernels(table);
  const Sight sight{.causal = true, .window = 3};
  CHECK_FALSE(view_of(sight, 8, 8, at::empty({16}, at::kBFloat16)).mask);
  CHECK(view_of(sight, 8, 8, at::empty({16}, at::kFloat)).mask);
  CHECK(view_of(sight, 8, 8, at::empty({12}, at::kBFloat16)).mask);
  CHECK_FALSE(view_of(sight, 8, 8, at::empty({256}, at::kHalf)).mask);
  CHECK(view_of(sight, 8, 8, at::empty({264}, at::kHalf)).mask);
}

TEST_CASE("Devices without FlashAttention, or without the shared memory for large heads, go by products") {
  KernelTable table = emulated_kernels();
  const KernelsOnHost kernels(table);
  static int capability = 0;
  table.compute_capability = [] { return capability; };
  const auto takes = [](int of_device, std::int64_t size) {
    capability = of_device;
    return !view_of({.causal = true, .window = 3}, 8, 8, at::empty({size}, at::kBFloat16)).mask;
  };
  CHECK_FALSE(takes(75, 64));
  CHECK(takes(80, 256));
  CHECK(takes(89, 192));
  CHECK_FALSE(takes(89, 200));
  CHECK(takes(100, 256));
  CHECK_FALSE(takes(120, 256));
}

TEST_CASE("A slice's queries see earlier slices' keys by FlashAttention, in the window and no further") {
  for (const std::int64_t window : {99, 9, 6, 3}) {
    for (const at::ScalarType type : narrow_types) {
      CAPTURE(window);
      const FlashCalls before = flash_calls();
      std::size_t pieces = 0;
      require_as_near_as_aten(
          {.inputs = {drawn({2, 4, 6, 16}, 1), drawn({2, 12, 3, 16}, 2), drawn({2, 12, 3, 16}, 3)},
           .weights = {},
           .plain = [&](const Tensors& x,
                        const Tensors&) { return Tensors{plain_attention(x[0], x[1], x[2], window)}; },
           .ours =
               [&](const Tensors& x, const Weights&, const WeightQueuePtr&) {
                 Tensors keys, values;
                 // Of two earlier slices what is in sight, and the own one.
                 for (const std::int64_t end : {4, 8, 12}) {
                   const std::int64_t first = std::max<std::int64_t>(end - 4, 8 - window + 1);
                   if (first >= end) continue;
                   keys.push_back(x[1].narrow(1, first, end - first));
                   values.push_back(x[2].narrow(1, first, end - first));
                 }
                 pieces = keys.size();
                 return Tensors{sliced_attention(x[0], keys, values, window)};
               }},
          type);
      CHECK(flash_calls().forward == before.forward + static_cast<int>(pieces));
      CHECK(flash_calls().backward == before.backward + static_cast<int>(pieces));
    }
  }
}
