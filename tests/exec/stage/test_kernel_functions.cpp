// The stages' functions on (emulated) kernels, as tests/exec/stage/kernel_problem.hpp has it.
#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "exec/stage/modules/lora.hpp"
#include "exec/stage/primitives/delta_rule.hpp"
#include "exec/stage/primitives/expert_moves.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"
#include "exec/stage/primitives/primitives.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/emulated_kernels.hpp"
#include "tests/exec/stage/kernel_problem.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

at::Tensor plain_norm(const at::Tensor& h, const at::Tensor& weight) {
  return h * (h.square().mean(-1, true) + 1e-6).rsqrt() * weight;
}

}  // namespace

TEST_CASE("Kernels are found for the types that they take, on devices that have some") {
  const at::Tensor x = at::ones({2});
  CHECK(&primitives_for(x) == &aten_primitives());
  const KernelTable table = emulated_kernels();
  const KernelsOnHost kernels(table);
  CHECK(kernel_table(x) == &table);
  for (const at::ScalarType type : types) CHECK(&primitives_for(x.to(type)) == &kernel_primitives());
  CHECK(&primitives_for(x.to(at::kDouble)) == &aten_primitives());
}

TEST_CASE("RMSNorm on kernels, alone and of a sum") {
  for (const at::ScalarType type : types) {
    require_as_near_as_aten(
        {.inputs = {drawn({2, 5, 48}, 1)},
         .weights = {drawn({48}, 2)},
         .plain = [](const Tensors& x, const Tensors& w) { return Tensors{plain_norm(x[0], w[0])}; },
         .ours = [](const Tensors& x, const Weights& w,
                    const WeightQueuePtr& queue) { return Tensors{rms_norm(x[0], w[0], queue)}; }},
        type);
    // Of another order in memory, which is what autograd keeps for the backward pass.
    require_as_near_as_aten(
        {.inputs = {drawn({5, 3, 48}, 6)},
         .weights = {drawn({48}, 7)},
         .plain = [](const Tensors& x, const Tensors& w) { return Tensors{plain_norm(x[0].transpose(0, 1), w[0])}; },
         .ours = [](const Tensors& x, const Weights& w,
                    const WeightQueuePtr& queue) { return Tensors{rms_norm(x[0].transpose(0, 1), w[0], queue)}; }},
        type);
    require_as_near_as_aten({.inputs = {drawn({3, 7, 40}, 3), drawn({3, 7, 40}, 4)},
                             .weights = {drawn({40}, 5)},
                             .plain =
                                 [](const Tensors& x, const Tensors& w) {
                                   return Tensors{x[0] + x[1], plain_norm(x[0] + x[1], w[0])};
                                 },
                             .ours =
                                 [](const Tensors& x, const Weights& w, const WeightQueuePtr& queue) {
                                   const NormOfSum made = sum_rms_norm(x[0], x[1], w[0], queue);
                                   return Tensors{made.sum, made.normal};
                                 }},
                            type);
  }
}

TEST_CASE("SwiGLU on kernels, of whole rows and of views") {
  for (const at::ScalarType type : types) {
    const auto plain = [](const at::Tensor& gate, const at::Tensor& up) { return gate * at::sigmoid(gate) * up; };
    require_as_near_as_aten(
        {.inputs = {drawn({2, 3, 24}, 1), drawn({2, 3, 24}, 2)},
         .weights = {},
         .plain = [=](const Tensors& x, const Tensors&) { return Tensors{plain(x[0], x[1])}; },
         .ours = [](const Tensors& x, const Weights&, const WeightQueuePtr&) { return Tensors{swiglu(x[0], x[1])}; }},
        type);
    require_as_near_as_aten(
        {.inputs = {drawn({4, 26}, 3)},
         .weights = {},
         .plain = [=](const Tensors& x,
                      const Tensors&) { return Tensors{plain(x[0].narrow(1, 0, 13), x[0].narrow(1, 13, 13))}; },
         .ours = [](const Tensors& x, const Weights&,
                    const WeightQueuePtr&) { return Tensors{swiglu(x[0].narrow(1, 0, 13), x[0].narrow(1, 13, 13))}; }},
        type);
  }
}

TEST_CASE("Rotary positions on kernels, by halves and by neighbours, a part of a head") {
  const at::Tensor angle = drawn({6, 4}, 9);
  for (const at::ScalarType type : types) {
    for (const bool interleaved : {false, true}) {
      const auto plain = [=](const Tensors& x, const Tensors&) {
        const at::Tensor turning = x[0].narrow(-1, 0, 8);
        const at::Tensor a = interleaved ? turning.slice(-1, 0, 8, 2) : turning.narrow(-1, 0, 4);
        const at::Tensor b = interleaved ? turning.slice(-1, 1, 8, 2) : turning.narrow(-1, 4, 4);
        const at::Tensor c = angle.cos().unsqueeze(1), s = angle.sin().unsqueeze(1);
        const at::Tensor left = a * c - b * s, right = b * c + a * s;
        const at::Tensor turned = interleaved ? at::stack({left, right}, -1).flatten(-2) : at::cat({left, right}, -1);
        return Tensors{at::cat({turned, x[0].narrow(-1, 8, 2)}, -1)};
      };
      const RotaryTables tables = {
          .cosine = angle.cos().to(at::kFloat), .sine = angle.sin().to(at::kFloat), .interleaved = interleaved};
      require_as_near_as_aten({.inputs = {drawn({2, 6, 3, 10}, 1)},
                               .weights = {},
                               .plain = plain,
                               .ours = [=](const Tensors& x, const Weights&,
                                           const WeightQueuePtr&) { return Tensors{rotate(x[0], tables)}; }},
                              type);
    }
  }
}

TEST_CASE("Tokens go to their experts and back on kernels, with the gradient of their shares") {
  const at::Tensor chosen = at::tensor({2, 0, 0, 3, 3, 2, 0, 2, 2, 3, 0, 3}, at::kLong).view({6, 2});  // none for 1
  const at::Tensor each = drawn({4, 16}, 8);  // what an expert multiplies its rows by
  const auto plain = [=](const Tensors& x, const Tensors&) {
    at::Tensor y = at::zeros_like(x[0]);
    for (std::int64_t j = 0; j < 2; ++j) {
      y = y + x[1].narrow(1, j, 1) * x[0] * each.to(x[0].scalar_type()).index_select(0, chosen.select(1, j));
    }
    return Tensors{y};
  };
  const auto ours = [=](const Tensors& x, const Weights&, const WeightQueuePtr&) {
    const DispatchPtr plan = dispatched(x[0], chosen, 4);
    CHECK(plan->of.rows->counts() == std::vector<std::int64_t>{4, 0, 4, 4});
    const at::Tensor expert = at::arange(4).repeat_interleave(at::tensor(plan->of.rows->counts(), at::kLong));
    const at::Tensor made = permuted(x[0], plan) * each.to(x[0].scalar_type()).index_select(0, expert);
    return Tensors{unpermuted(made, x[1].to(at::kFloat), plan)};
  };
  for (const at::ScalarType type : types) {
    require_as_near_as_aten(
        {.inputs = {drawn({6, 16}, 1), drawn({6, 2}, 2)}, .weights = {}, .plain = plain, .ours = ours}, type);
  }
}

TEST_CASE("A frozen projection with an adapter on kernels: dx from I, dA and dB from W") {
  const double scale = 0.75;
  for (const bool biased : {false, true}) {
    const at::Tensor base = drawn({24, 40}, 7) / 6, bias = drawn({24}, 8);
    for (const at::ScalarType type : types) {
      const auto ours = [=](const Tensors& x, const Weights& w, const WeightQueuePtr& queue) {
        const auto frozen = c10::make_intrusive<Weight>(), offset = c10::make_intrusive<Weight>();
        frozen->value = base.to(x[0].scalar_type());
        offset->value = bias.to(x[0].scalar_type());
        const auto adapter = c10::make_intrusive<Adapter>();
        adapter->a = w[0];
        adapter->b = w[1];
        adapter->scale = scale;
        return Tensors{adapted_linear(x[0], frozen, biased ? offset : WeightPtr(), adapter, queue)};
      };
      const auto rounded = [=](const Tensors& x, const Tensors& w) {
        const at::Tensor y = at::matmul(x[0], base.to(type).to(x[0].scalar_type()).t()) +
                             scale * at::matmul(at::matmul(x[0], w[0].t()), w[1].t());
        return Tensors{biased ? y + bias.to(type).to(x[0].scalar_type()) : y};
      };
      require_as_near_as_aten({.inputs = {drawn({2, 9, 40}, 1)},
                               .weights = {drawn({8, 40}, 2) / 6, drawn({24, 8}, 3) / 3},
                               .plain = rounded,
                               .ours = ours},
                              type);
    }
  }
}

namespace {

// [batch, heads, time, …], step by step; unit keys and queries, as Gated DeltaNet has them.
Tensors plain_delta(const Tensors& x, const Tensors&) {
  at::Tensor state = x[5];
  Tensors outputs;
  for (std::int64_t t = 0; t < x[0].size(2); ++t) {
    const at::Tensor key = x[1].select(2, t).unsqueeze(-1);
    state = state * x[4].select(2, t).exp().unsqueeze(-1).unsqueeze(-1);
    const at::Tensor write = x[3].select(2, t).unsqueeze(-1).unsqueeze(-1) *
                             (x[2].narrow(2, t, 1) - at::matmul(key.transpose(-1, -2), state));
    state = state + at::matmul(key, write);
    outputs.push_back(at::matmul(x[0].narrow(2, t, 1), state));
  }
  return {at::cat(outputs, 2), state};
}

}  // namespace

TEST_CASE("The gated delta rule on kernels, from a state and into one") {
  const auto unit = [](const at::Tensor& x) { return x / at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true); };
  for (const at::ScalarType type : types) {
    const auto ours = [=](const Tensors& x, const Weights&, const WeightQueuePtr&) {
      at::Tensor state = x[5];
      const DeltaInput input = {.query = x[0], .key = x[1], .value = x[2], .beta = x[3], .log_decay = x[4]};
      const at::Tensor y = primitives_for(x[0]).delta_rule(input, {.chunk = 64, .type = type}, &state);
      return Tensors{y, state};
    };
    require_as_near_as_aten({.inputs = {unit(drawn({1, 2, 70, 64}, 1)), unit(drawn({1, 2, 70, 64}, 2)),
                                        drawn({1, 2, 70, 32}, 3), at::sigmoid(drawn({1, 2, 70}, 4)),
                                        -at::softplus(drawn({1, 2, 70}, 5)), drawn({1, 2, 64, 32}, 6) / 4},
                             .weights = {},
                             .plain = plain_delta,
                             .ours = ours},
                            type, type == at::kFloat ? Other::stage : Other::plain);
  }
}

TEST_CASE("The gated delta rule goes by LibTorch's chunks where a block has too little shared memory for the kernels") {
  static int on_kernels = 0;
  KernelTable table = emulated_kernels();
  table.gated_delta_forward = [](auto... arguments) {
    ++on_kernels;
    emulated_kernels().gated_delta_forward(arguments...);
  };
  const KernelsOnHost kernels(table);
  const Tensors x = {drawn({1, 2, 70, 64}, 1) / 8, drawn({1, 2, 70, 64}, 2) / 8, drawn({1, 2, 70, 32}, 3),
                     at::sigmoid(drawn({1, 2, 70}, 4)), -at::softplus(drawn({1, 2, 70}, 5))};
  const auto made = [&](at::ScalarType type, std::size_t shared, bool by_libtorch = false) {
    const SharedMemoryOf limit(shared);
    Tensors leaves;
    for (const at::Tensor& each : x) leaves.push_back(each.to(at::kFloat).detach().requires_grad_());
    const DeltaInput input = {leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]};
    at::Tensor state;
    on_kernels = 0;
    at::Tensor y = by_libtorch ? delta_rule(input, 64, &state)
                               : primitives_for(leaves[0]).delta_rule(input, {.chunk = 64, .type = type}, &state);
    Tensors results = torch::autograd::grad({y, state}, leaves, {at::ones_like(y), at::ones_like(state)});
    results.push_back(y.detach());
    results.push_back(state.detach());
    return results;
  };
  const std::size_t kib = 1024;
  const Tensors all = made(at::kFloat, 140 * kib);
  CHECK(on_kernels == 1);
  const Tensors plain = made(at::kFloat, 0, true);
  for (const std::size_t limit : {99 * kib, 139 * kib}) {  // of the second the forward pass alone would do
    const Tensors found = made(at::kFloat, limit);
    CHECK(on_kernels == 0);
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(limit, i);
      CHECK(at::equal(found[i], plain[i]));
      CHECK(distance(all[i], found[i]) <= 1e-5 * at::linalg_vector_norm(found[i]).item<double>());
    }
  }
  CHECK(made(at::kBFloat16, 99 * kib)[5].scalar_type() == at::kBFloat16);
  CHECK(on_kernels == 1);
}

TEST_CASE("AdamW on kernels has the bits of the plain loops, for many tensors and their narrow copies") {
  const AdamW settings{.rate = 0.02, .decay = 0.1};
  const KernelTable table = emulated_kernels();
  std::vector<AdamWState> by_loops, by_kernel;
  for (std::int64_t size : {1, 1000, 70000}) {
    const at::Tensor start = drawn({size}, static_cast<std::uint64_t>(size)).to(at::kFloat);
    for (std::vector<AdamWState>* const states : {&by_loops, &by_kernel}) {
      states->push_back({.master = start.clone(),
                         .gradient = start.cos(),
                         .first_moment = at::zeros_like(start),
                         .second_moment = at::zeros_like(start),
                         .copy = at::empty_like(start, at::kBFloat16)});
    }
  }
  for (int step = 1; step <= 3; ++step) {
    primitives_for(by_loops.front().master).adamw(settings, step, by_loops);
    const KernelsOnHost kernels(table);
    primitives_for(by_kernel.front().master).adamw(settings, step, by_kernel);
  }
  for (std::size_t i = 0; i < by_loops.size(); ++i) {
    CHECK(at::equal(by_loops[i].master, by_kernel[i].master));
    CHECK(at::equal(by_loops[i].second_moment, by_kernel[i].second_moment));
    CHECK(at::equal(by_loops[i].copy, by_kernel[i].copy));
    CHECK_FALSE(at::equal(by_loops[i].master, by_loops[i].gradient));
  }
}
