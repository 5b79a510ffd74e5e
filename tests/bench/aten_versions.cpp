#include "tests/bench/aten_versions.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <memory>
#include <vector>

#include "exec/stage/primitives/delta_rule.hpp"
#include "exec/stage/primitives/primitives.hpp"

namespace plumb::bench {
namespace {

using Tensors = std::vector<at::Tensor>;
using Run = std::function<void()>;

at::TensorOptions of(at::ScalarType type) { return at::TensorOptions().dtype(type).device(at::kCUDA); }
at::Tensor made(at::IntArrayRef shape, at::ScalarType type = at::kBFloat16) { return at::randn(shape, of(type)); }
at::Tensor leaf(at::IntArrayRef shape, at::ScalarType type = at::kBFloat16) {
  return made(shape, type).requires_grad_();
}

// The backward pass alone of what autograd has recorded.
Run backward_of(const at::Tensor& y, const Tensors& inputs) {
  const at::Tensor dy = at::ones_like(y).detach();
  return [=] { (void)torch::autograd::grad({y}, inputs, {dy}, /*retain_graph=*/true); };
}

Run norm(const Sizes& n, bool residual) {
  const at::Tensor x = made({n.tokens, n.hidden}), beside = made({n.tokens, n.hidden}), weight = made({n.hidden});
  return [=] { (void)at::rms_norm(residual ? x + beside : x, {n.hidden}, weight, 1e-6); };
}

Run norm_backward(const Sizes& n) {
  const at::Tensor x = leaf({n.tokens, n.hidden}), weight = leaf({n.hidden});
  return backward_of(at::rms_norm(x, {n.hidden}, weight, 1e-6), {x, weight});
}

at::Tensor swiglu(const at::Tensor& both, std::int64_t ffn) {
  return at::silu(both.narrow(1, 0, ffn)) * both.narrow(1, ffn, ffn);
}

Run rotary(const Sizes& n) {
  const at::Tensor x = made({n.tokens / 4096, 4096, n.hidden / 128, 128});
  const at::Tensor cosine = made({4096, 1, 64}, at::kFloat), sine = made({4096, 1, 64}, at::kFloat);
  return [=] {
    const at::Tensor a = x.narrow(-1, 0, 64), b = x.narrow(-1, 64, 64);
    (void)at::cat({a * cosine - b * sine, b * cosine + a * sine}, -1).to(x.scalar_type());
  };
}

struct Moe {
  at::Tensor chosen, choice, token, x, rows, share;
};

Moe moe(const Sizes& n) {
  Moe m;
  m.chosen = at::randint(256, {n.tokens, 8}, of(at::kLong));
  m.choice = at::argsort(m.chosen.flatten(), /*stable=*/true, 0, false);
  m.token = at::floor_divide(m.choice, 8);
  m.x = leaf({n.tokens, n.hidden});
  m.rows = leaf({8 * n.tokens, n.hidden});
  m.share = leaf({n.tokens, 8});
  return m;
}

at::Tensor unpermuted(const Moe& m) {
  const at::Tensor weighted = m.rows * m.share.flatten().index_select(0, m.choice).unsqueeze(1);
  return at::zeros_like(m.x).index_add(0, m.token, weighted);
}

Run moe_plan(const Sizes& n) {
  const Moe m = moe(n);
  return [=] {
    (void)at::argsort(m.chosen.flatten(), /*stable=*/true, 0, false);
    (void)at::bincount(m.chosen.flatten(), {}, 256);
  };
}

Run adamw() {
  Tensors weights, gradients, first, second, steps, copies;
  for (int i = 0; i < 40; ++i) {
    for (Tensors* const all : {&weights, &gradients, &first, &second}) all->push_back(made({5'000'000}, at::kFloat));
    second.back().abs_();
    steps.push_back(at::ones({}, of(at::kFloat)));
    copies.push_back(made({5'000'000}));
  }
  return [=] {
    at::_fused_adamw_(weights, gradients, first, second, {}, steps, 1e-3, 0.9, 0.999, 1e-2, 1e-8, false, false);
    at::_foreach_copy_(copies, weights);
  };
}

// As torch.nn.utils.clip_grad_norm_ finds it.
Run gradient_norm() {
  Tensors gradients;
  for (int i = 0; i < 40; ++i) gradients.push_back(made({5'000'000}, at::kFloat));
  return [=] { (void)at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients))); };
}

Run lora(const Sizes& n, std::int64_t rank, const std::string& which) {
  const at::Tensor x = made({n.tokens, n.hidden}), factor = made({rank, n.hidden}), z = made({n.tokens, rank});
  if (which == "project") return [=] { (void)at::mm(x, factor.t()); };
  if (which == "add") return [=] { (void)at::Tensor(x).addmm_(z, factor); };
  if (which == "gradient") return [=] { (void)at::mm(z.t(), x); };
  return [=] {
    (void)at::mm(x, factor.t());
    (void)at::mm(z.t(), x);
  };
}

exec::DeltaInput delta_input(const Sizes& n) {
  const auto unit = [&] {
    const at::Tensor x = made({1, 32, n.tokens, 128}, at::kFloat);
    return (x / at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true)).requires_grad_();
  };
  return {.query = unit(),
          .key = unit(),
          .value = leaf({1, 32, n.tokens, 128}, at::kFloat),
          .beta = at::sigmoid(made({1, 32, n.tokens}, at::kFloat)).requires_grad_(),
          .log_decay = (-at::softplus(made({1, 32, n.tokens}, at::kFloat))).detach().requires_grad_()};
}

Run delta_backward(const Sizes& n) {
  const exec::DeltaInput input = delta_input(n);
  return backward_of(exec::delta_rule(input, 64), {input.query, input.key, input.value, input.beta, input.log_decay});
}

std::map<std::string, std::function<Run(const Sizes&)>> versions() {
  return {
      {"RMSNorm forward", [](const Sizes& n) { return norm(n, false); }},
      {"RMSNorm forward + residual", [](const Sizes& n) { return norm(n, true); }},
      {"RMSNorm input gradient", norm_backward},
      {"SwiGLU forward",
       [](const Sizes& n) -> Run {
         const at::Tensor both = made({n.tokens, 2 * n.ffn});
         return [=] { (void)swiglu(both, n.ffn); };
       }},
      {"SwiGLU backward",
       [](const Sizes& n) {
         const at::Tensor both = leaf({n.tokens, 2 * n.ffn});
         return backward_of(swiglu(both, n.ffn), {both});
       }},
      {"rotary, in place", rotary},
      {"MoE plan", moe_plan},
      {"MoE permute",
       [](const Sizes& n) -> Run {
         const Moe m = moe(n);
         return [=] { (void)m.x.detach().index_select(0, m.token); };
       }},
      {"MoE unpermute",
       [](const Sizes& n) -> Run {
         Moe m = moe(n);
         for (at::Tensor* const x : {&m.x, &m.rows, &m.share}) *x = x->detach();
         return [=] { (void)unpermuted(m); };
       }},
      {"MoE unpermute backward",
       [](const Sizes& n) {
         const Moe m = moe(n);
         return backward_of(unpermuted(m), {m.rows, m.share});
       }},
      {"AdamW, 40 tensors", [](const Sizes&) { return adamw(); }},
      {"exact sum of squares, 40 tensors", [](const Sizes&) { return gradient_norm(); }},
      {"gated delta rule forward",
       [](const Sizes& n) -> Run {
         const exec::DeltaInput input = delta_input(n);
         return [=] { (void)exec::delta_rule(input, 64); };
       }},
      {"gated delta rule backward", delta_backward},
  };
}

}  // namespace

std::function<void()> aten_version(const std::string& kernel, const Sizes& sizes) {
  if (!at::hasCUDA()) return {};
  for (const std::int64_t rank : {16, 64}) {
    const std::string ending = ", rank " + std::to_string(rank);
    for (const std::string which : {"project", "add", "gradient", "dz and dB"}) {
      if (kernel == "LoRA " + which + ending) return lora(sizes, rank, which);
    }
  }
  const auto all = versions();
  const auto found = all.find(kernel);
  return found == all.end() ? std::function<void()>() : found->second(sizes);
}

LoraLayer lora_layer(const Sizes& n, std::int64_t rank) {
  if (!at::hasCUDA()) return {};
  const exec::LoraMatrices m = {.weight = made({n.hidden, n.hidden}),
                                .bias = {},
                                .a = made({rank, n.hidden}),
                                .b = made({n.hidden, rank}),
                                .scale = 2};
  const at::Tensor x = made({n.tokens, n.hidden}), dy = made({n.tokens, n.hidden});
  const at::Tensor da = at::zeros({rank, n.hidden}, of(at::kFloat)), db = at::zeros({n.hidden, rank}, of(at::kFloat));
  return {.base =
              [=] {
                (void)at::mm(x, m.weight.t());
                (void)at::mm(dy, m.weight);
              },
          .adapted =
              [=] {
                const exec::Primitives& compute = exec::primitives_for(x);
                const exec::LoraForward forward = compute.lora(x, m);
                const exec::LoraBackward backward = compute.lora_backward(dy, forward.narrow, m, true);
                backward.add_to_b(db);
                compute.lora_add_to_a(da, backward.dnarrow, x);
              }};
}

}  // namespace plumb::bench
