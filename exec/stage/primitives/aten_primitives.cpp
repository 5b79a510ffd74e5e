// The stages' functions in LibTorch's operations, for every device and type.
#include <ATen/ATen.h>

#include <algorithm>

#include "exec/stage/primitives/kernel_table.hpp"
#include "exec/stage/primitives/primitives.hpp"
#include "exec/stage/primitives/weight_optimizer.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "kernels/exact_squares.hpp"

namespace plumb::exec {
namespace {

// Root mean square layer normalisation (arXiv 1910.07467).
NormForward rms_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double epsilon) {
  const at::Tensor h = residual.defined() ? x + residual : x;
  const at::Tensor wide = h.to(wide_type(h.scalar_type()));
  const at::Tensor scale = (wide.square().mean(-1, true) + epsilon).rsqrt_();
  return {.h = h, .y = wide.mul(scale).mul_(weight).to(h.scalar_type()), .scale = scale};
}

// With n = h·scale: dx = scale · (dn − n · mean(dn · n)), dn = dy · weight. In place, so that no more than three values
// in the wide type stand beside each other.
NormBackward rms_norm_backward(const NormForward& made, const at::Tensor& weight, const at::Tensor& output_gradient,
                               const at::Tensor& dh, bool for_weight) {
  const at::ScalarType type = made.scale.scalar_type();
  const at::Tensor wide_weight = weight.to(type);
  at::Tensor normal = own_copy(made.h, type).mul_(made.scale);
  at::Tensor dy = output_gradient.to(type);
  at::Tensor product = dy.mul(normal);
  const at::Tensor mean = at::matmul(product, wide_weight).div_(static_cast<double>(wide_weight.numel())).unsqueeze(-1);
  NormBackward gradients{.dx = {}, .weight_parts = for_weight ? rows(product).sum(0) : at::Tensor()};
  product.reset();
  normal.mul_(mean);
  const bool is_argument = dy.is_alias_of(output_gradient);
  at::Tensor dx = is_argument ? dy.mul(wide_weight) : std::move(dy).mul_(wide_weight);
  dx.sub_(normal);
  normal.reset();
  dx = dx.mul_(made.scale).to(made.h.scalar_type());
  gradients.dx = dh.defined() ? dx + dh : dx;
  return gradients;
}

void add_parts(const at::Tensor& gradient, const at::Tensor& parts) { gradient.add_(parts); }

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate).mul_(up); }

std::pair<at::Tensor, at::Tensor> gated_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor dup = at::silu(gate).mul_(dy);
  at::Tensor dgate = dy.mul(up);
  at::silu_backward_out(dgate, dgate, gate);
  return {std::move(dgate), std::move(dup)};
}

// A rotation's transpose turns back.
at::Tensor rotate(const at::Tensor& x, const RotaryTables& tables, bool backwards) {
  const std::int64_t half = tables.cosine.size(1);
  const std::int64_t rest = x.size(-1) - 2 * half;
  const at::Tensor c = tables.cosine.unsqueeze(1);
  const at::Tensor s = (backwards ? tables.sine.neg() : tables.sine).unsqueeze(1);
  const auto part = [&](const at::Tensor& of, std::int64_t which) {
    return tables.interleaved ? of.slice(-1, which, 2 * half, 2) : of.narrow(-1, which * half, half);
  };
  const at::Tensor first = part(x, 0);
  const at::Tensor second = part(x, 1);
  at::Tensor y = at::empty(x.sizes(), x.options());
  part(y, 0).copy_((first * c).sub_(second * s));
  part(y, 1).copy_((second * c).add_(first * s));
  if (rest > 0) {
    y.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
  }
  return y;
}

Dispatch dispatch(const at::Tensor& chosen, std::int64_t experts) {
  const at::Tensor flat = chosen.flatten();
  const at::Tensor choice = at::argsort(flat, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  return {.tokens = chosen.size(0),
          .choice = choice,
          .token = at::floor_divide(choice, chosen.size(1)),
          .row_of = {},
          .rows = c10::make_intrusive<ExpertRows>(at::searchsorted(
              flat.index_select(0, choice), at::arange(experts, flat.options()), /*out_int32=*/true, /*right=*/true))};
}

at::Tensor permute(const at::Tensor& x, const Dispatch& plan) { return x.index_select(0, plan.token); }

at::Tensor permute_backward(const at::Tensor& drows, const Dispatch& plan) {
  return at::zeros({plan.tokens, drows.size(1)}, drows.options()).index_add_(0, plan.token, drows);
}

at::Tensor share_of_rows(const at::Tensor& share, const at::Tensor& rows, const Dispatch& plan) {
  return share.to(rows.scalar_type()).flatten().index_select(0, plan.choice).unsqueeze(1);
}

at::Tensor unpermute(const at::Tensor& rows, const at::Tensor& share, const Dispatch& plan) {
  return at::zeros({share.size(0), rows.size(1)}, rows.options())
      .index_add_(0, plan.token, rows * share_of_rows(share, rows, plan));
}

std::pair<at::Tensor, at::Tensor> unpermute_backward(const at::Tensor& dy, const at::Tensor& rows,
                                                     const at::Tensor& share, const Dispatch& plan) {
  const at::Tensor drow = dy.index_select(0, plan.token);
  const at::Tensor dshare = at::zeros({share.numel()}, rows.options())
                                .index_add_(0, plan.choice, (drow * rows).sum(1))
                                .view(share.sizes())
                                .to(share.scalar_type());
  return {drow * share_of_rows(share, rows, plan), dshare};
}

at::Tensor delta_rule_by_chunks(const DeltaInput& input, const DeltaChoice& choice, at::Tensor* state) {
  return delta_rule(input, choice.chunk, state);
}

LoraForward lora(const at::Tensor& x, const LoraMatrices& m) {
  at::Tensor y = at::linear(x, m.weight, m.bias);
  at::Tensor narrow = at::mm(rows(x), m.a.t()).mul_(m.scale);
  y.view({-1, y.size(-1)}).addmm_(narrow, m.b.t());
  return {.y = std::move(y), .narrow = std::move(narrow)};
}

LoraBackward lora_backward(const at::Tensor& dy, const at::Tensor& narrow, const LoraMatrices& m, bool for_input) {
  LoraBackward made{.dx = {}, .dnarrow = at::mm(rows(dy), m.b).mul_(m.scale)};
  made.add_to_b = [dy, narrow](const at::Tensor& gradient) { accumulate_product(gradient, rows(dy), narrow); };
  if (for_input) {
    made.dx = at::matmul(dy, m.weight);
    made.dx.view({-1, made.dx.size(-1)}).addmm_(made.dnarrow, m.a);
  }
  return made;
}

void lora_add_to_a(const at::Tensor& gradient, const at::Tensor& dnarrow, const at::Tensor& x) {
  accumulate_product(gradient, dnarrow, rows(x));
}

std::span<float> values(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

void adamw(const AdamW& settings, std::int64_t step, std::span<const AdamWState> states) {
  for (const AdamWState& s : states) {
    if (s.master.is_cpu()) {
      adamw_step(settings, step, values(s.master), values(s.gradient), values(s.first_moment), values(s.second_moment));
    } else {
      adamw_step(settings, step, s.master, s.gradient, s.first_moment, s.second_moment);
    }
    if (s.copy.defined()) s.copy.copy_(s.master);
  }
}

// Where there is no kernel, on the host.
at::Tensor exact_squares(std::span<const at::Tensor> tensors) {
  kernels::ExactSquares sum;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor here = tensor.cpu();
    sum.add({here.const_data_ptr<float>(), static_cast<std::size_t>(here.numel())});
  }
  const kernels::ExactSquares::Numbers found = sum.numbers();
  at::Tensor numbers = at::empty({static_cast<std::int64_t>(found.size())}, at::kLong);
  std::ranges::copy(found, static_cast<std::uint64_t*>(numbers.mutable_data_ptr()));
  return numbers.to(tensors.front().device());
}

}  // namespace

const Primitives& aten_primitives() {
  static const Primitives all{.rms_norm = rms_norm,
                              .rms_norm_backward = rms_norm_backward,
                              .add_parts = add_parts,
                              .swiglu = gated,
                              .swiglu_backward = gated_backward,
                              .rotate = rotate,
                              .dispatch = dispatch,
                              .permute = permute,
                              .permute_backward = permute_backward,
                              .unpermute = unpermute,
                              .unpermute_backward = unpermute_backward,
                              .delta_rule = delta_rule_by_chunks,
                              .lora = lora,
                              .lora_backward = lora_backward,
                              .lora_add_to_a = lora_add_to_a,
                              .adamw = adamw,
                              .exact_squares = exact_squares};
  return all;
}

const Primitives& primitives_for(const at::Tensor& x) {
  return kernel_table(x) != nullptr && is_kernel_type(x.scalar_type()) ? kernel_primitives() : aten_primitives();
}

}  // namespace plumb::exec
