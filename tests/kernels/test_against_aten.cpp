// The kernels' references against ATen in fp64, and their backward passes against autograd.
#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/lora.hpp"
#include "kernels/moe.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/swiglu.hpp"
#include "tests/catch.hpp"

using namespace plumb::kernels;

namespace {

at::Tensor random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }
at::Tensor leaf(at::IntArrayRef shape) { return random(shape).requires_grad_(); }
double* of(const at::Tensor& x) { return x.data_ptr<double>(); }
at::Tensor like(const at::Tensor& x) { return at::full_like(x.detach(), std::nan("")); }

void check_near(const at::Tensor& found, const at::Tensor& expected) {
  REQUIRE(found.sizes() == expected.sizes());
  CHECK((found - expected).abs().max().item<double>() <= 1e-12 * (1 + expected.abs().max().item<double>()));
}

}  // namespace

TEST_CASE("RMSNorm with a residual, and its derivative, are ATen's") {
  at::manual_seed(1);
  for (const RmsNormShape& shape : {RmsNormShape{1, 1}, RmsNormShape{5, 7, 0.1}, RmsNormShape{3, 64}}) {
    const at::Tensor x = leaf({shape.rows, shape.columns});
    const at::Tensor residual = random({shape.rows, shape.columns});
    const at::Tensor weight = leaf({shape.columns});
    const at::Tensor h = x + residual;
    const at::Tensor y = at::rms_norm(h, {shape.columns}, weight, shape.epsilon);
    const at::Tensor dy = random(y.sizes());
    const at::Tensor dh = random(y.sizes());
    ((y * dy).sum() + (h * dh).sum()).backward();

    const at::Tensor sum = like(x), out = like(x), dx = like(x), dweight = like(weight);
    const at::Tensor inverse = at::empty({shape.rows}, at::kDouble);
    rms_norm_forward_reference(shape, {.x = of(x),
                                       .residual = of(residual),
                                       .weight = of(weight),
                                       .h = of(sum),
                                       .y = of(out),
                                       .inverse_rms = of(inverse)});
    rms_norm_input_gradient_reference(shape, {.dy = of(dy),
                                              .h = of(sum),
                                              .weight = of(weight),
                                              .inverse_rms = of(inverse),
                                              .dh = of(dh),
                                              .dx = of(dx),
                                              .parts = of(dweight)});
    check_near(sum, h.detach());
    check_near(out, y.detach());
    check_near(dx, x.grad());
    check_near(dweight, weight.grad());
  }
}

TEST_CASE("SwiGLU and its derivative are ATen's") {
  at::manual_seed(2);
  const SwigluShape shape = {.rows = 6, .columns = 5, .stride = 10};
  const at::Tensor both = (random({6, 10}) * 4).requires_grad_();
  const at::Tensor y = at::silu(both.narrow(1, 0, 5)) * both.narrow(1, 5, 5);
  const at::Tensor dy = random({6, 5});
  y.backward(dy);
  const at::Tensor out = like(y), dboth = like(both);
  swiglu_forward_reference(shape, {.gate = of(both), .up = of(both) + 5, .y = of(out)});
  swiglu_backward_reference(
      shape, {.dy = of(dy), .gate = of(both), .up = of(both) + 5, .dgate = of(dboth), .dup = of(dboth) + 5});
  check_near(out, y.detach());
  check_near(dboth, both.grad());
}

// As complex numbers: x1 + i x2 times cos + i sin.
TEST_CASE("Rotary positions are products of complex numbers, and turn back in the backward pass") {
  at::manual_seed(3);
  for (const bool interleaved : {false, true}) {
    const RotaryShape shape = {.tokens = 6,
                               .time = 3,
                               .heads = 2,
                               .size = 10,
                               .half = 4,
                               .x_stride = 20,
                               .y_stride = 20,
                               .interleaved = interleaved};
    const at::Tensor x = leaf({2, 3, 2, 10});
    const at::Tensor angle = random({3, 4});
    const at::Tensor turning = x.narrow(-1, 0, 8);
    const at::Tensor pairs = interleaved ? turning.reshape({2, 3, 2, 4, 2}).contiguous()
                                         : turning.reshape({2, 3, 2, 2, 4}).transpose(-1, -2).contiguous();
    const at::Tensor turned =
        at::view_as_real(at::view_as_complex(pairs) * at::complex(angle.cos(), angle.sin()).unsqueeze(1));
    const at::Tensor flat = (interleaved ? turned : turned.transpose(-1, -2)).reshape({2, 3, 2, 8});
    const at::Tensor y = at::cat({flat, x.narrow(-1, 8, 2)}, -1);
    const at::Tensor dy = random(y.sizes());
    y.backward(dy);
    const at::Tensor cosine = angle.cos(), sine = angle.sin(), out = like(x), dx = like(x);
    rotary_reference(shape, {.x = of(x), .cosine = of(cosine), .sine = of(sine), .y = of(out)});
    rotary_reference(shape, {.x = of(dy), .cosine = of(cosine), .sine = of(sine), .y = of(dx), .backwards = true});
    check_near(out, y.detach());
    check_near(dx, x.grad());
  }
}

TEST_CASE("Permute, unpermute and their derivatives are ATen's indexing") {
  at::manual_seed(4);
  const MoeShape shape = {.tokens = 9, .hidden = 5, .top_k = 3, .experts = 4};
  const at::Tensor experts = at::randint(-1, 3, {9, 3}, at::kInt);  // some dropped, the last expert empty
  const at::Tensor row_of = at::empty({9, 3}, at::kInt), offsets = at::empty({5}, at::kInt);
  moe_plan_reference(
      shape,
      {.expert_of = experts.data_ptr<int>(), .row_of = row_of.data_ptr<int>(), .offsets = offsets.data_ptr<int>()});
  const at::Tensor flat = experts.flatten();
  const at::Tensor order = at::argsort(flat, /*stable=*/true).slice(0, (flat < 0).sum().item<std::int64_t>());
  const std::int64_t rows = order.size(0);
  REQUIRE(offsets[4].item<int>() == rows);
  CHECK(at::equal(row_of.flatten().index_select(0, order), at::arange(rows, at::kInt)));

  const at::Tensor x = leaf({9, 5}), weight = leaf({9, 3});
  const at::Tensor token = order.div(3, "floor");
  const at::Tensor sorted = x.index_select(0, token);
  const at::Tensor work = leaf({rows, 5});
  const at::Tensor y =
      at::zeros({9, 5}, at::kDouble).index_add(0, token, work * weight.flatten().index_select(0, order).unsqueeze(1));
  const at::Tensor dsorted = random({rows, 5}), dy = random({9, 5});
  sorted.backward(dsorted);
  y.backward(dy);

  const int* const to = row_of.data_ptr<int>();
  const at::Tensor permuted = like(sorted), dx = like(x), out = like(y), dwork = like(work), dweight = like(weight);
  moe_permute_reference(shape, {.x = of(x), .row_of = to, .rows = of(permuted)});
  moe_unpermute_reference(shape, {.rows = of(dsorted), .row_of = to, .y = of(dx)});
  moe_unpermute_reference(shape, {.rows = of(work), .row_of = to, .weight = of(weight), .y = of(out)});
  moe_unpermute_backward_reference(
      shape,
      {.dy = of(dy), .rows = of(work), .row_of = to, .weight = of(weight), .drows = of(dwork), .dweight = of(dweight)});
  check_near(permuted, sorted.detach());
  check_near(dx, x.grad());
  check_near(out, y.detach());
  check_near(dwork, work.grad());
  check_near(dweight, weight.grad());
}

TEST_CASE("LoRA's passes are F, I and W of autograd") {
  at::manual_seed(5);
  constexpr std::int64_t tokens = 7, in = 6, out = 5, rank = 3;
  constexpr double scale = 0.25;
  const at::Tensor x = leaf({tokens, in}), a = leaf({rank, in}), b = leaf({rank, out}), base = random({in, out});
  const at::Tensor y = at::matmul(x, base) + scale * at::matmul(at::matmul(x, a.t()), b);
  const at::Tensor dy = random(y.sizes());
  y.backward(dy);
  const LoraShape of_x = {.tokens = tokens, .columns = in, .rank = rank, .x_stride = in, .z_stride = rank};
  const LoraShape of_y = {.tokens = tokens, .columns = out, .rank = rank, .x_stride = out, .z_stride = rank};
  const at::Tensor z = at::empty({tokens, rank}, at::kDouble), dz = like(z);
  const at::Tensor found = at::matmul(x, base).detach().clone(), dx = at::matmul(dy, base.t());
  const at::Tensor da = at::zeros({rank, in}, at::kDouble), db = at::zeros({rank, out}, at::kDouble);
  lora_project_reference(of_x, {.x = of(x), .factor = of(a), .z = of(z), .scale = scale});
  lora_add_reference(of_y, {.z = of(z), .factor = of(b), .x = of(found)});
  lora_project_reference(of_y, {.x = of(dy), .factor = of(b), .z = of(dz), .scale = scale});
  lora_add_reference(of_x, {.z = of(dz), .factor = of(a), .x = of(dx)});
  lora_gradient_reference(of_y, {.z = of(z), .x = of(dy), .gradient = of(db)});
  lora_gradient_reference(of_x, {.z = of(dz), .x = of(x), .gradient = of(da)});
  check_near(found, y.detach());
  check_near(dx, x.grad());
  check_near(da, a.grad());
  check_near(db, b.grad());

  // The base product over in + rank columns, z behind x and b under the base: the same without `add`.
  const at::Tensor wide = at::cat({x.detach(), at::empty({tokens, rank}, at::kDouble)}, 1).contiguous();
  const LoraShape behind = {
      .tokens = tokens, .columns = in, .rank = rank, .x_stride = in + rank, .z_stride = in + rank};
  lora_project_reference(behind, {.x = of(wide), .factor = of(a), .z = of(wide) + in, .scale = scale});
  check_near(at::matmul(wide, at::cat({base, b.detach()}, 0)), y.detach());
}

// With S a state, k a column, u a row: S ← exp(g) S; S ← S + k (beta (v − k S)); o = q S.
TEST_CASE("The gated delta rule's derivative is autograd's of the recurrence") {
  at::manual_seed(6);
  const GatedDeltaShape shape = {.sequences = 2, .time = 7, .key_dim = 3, .value_dim = 4};
  const at::Tensor q = leaf({2, 7, 3}), k = leaf({2, 7, 3}), v = leaf({2, 7, 4}), beta = at::rand({2, 7}, at::kDouble);
  const at::Tensor decay = -at::rand({2, 7}, at::kDouble), first = leaf({2, 3, 4});
  beta.requires_grad_();
  decay.requires_grad_();
  at::Tensor state = first;
  std::vector<at::Tensor> outputs;
  for (std::int64_t t = 0; t < shape.time; ++t) {
    const at::Tensor key = k.select(1, t).unsqueeze(2);
    state = state * decay.select(1, t).exp().reshape({2, 1, 1});
    const at::Tensor recalled = at::matmul(key.transpose(1, 2), state);
    state = state + at::matmul(key, beta.select(1, t).reshape({2, 1, 1}) * (v.narrow(1, t, 1) - recalled));
    outputs.push_back(at::matmul(q.narrow(1, t, 1), state));
  }
  const at::Tensor output = at::cat(outputs, 1), dout = random(output.sizes()), dlast = random(state.sizes());
  ((output * dout).sum() + (state * dlast).sum()).backward();

  const GatedDeltaInput input = {
      .query = of(q), .key = of(k), .value = of(v), .beta = of(beta), .log_decay = of(decay), .first_state = of(first)};
  const at::Tensor out = like(output), dq = like(q), dk = like(k), dv = like(v), db = like(beta), dg = like(decay);
  const at::Tensor dfirst = like(first);
  gated_delta_reference(shape, input, of(out));
  gated_delta_backward_reference(shape, input,
                                 {.output = of(dout),
                                  .last_state = of(dlast),
                                  .query = of(dq),
                                  .key = of(dk),
                                  .value = of(dv),
                                  .beta = of(db),
                                  .log_decay = of(dg),
                                  .first_state = of(dfirst)});
  check_near(out, output.detach());
  check_near(dq, q.grad());
  check_near(dk, k.grad());
  check_near(dv, v.grad());
  check_near(db, beta.grad());
  check_near(dg, decay.grad());
  check_near(dfirst, first.grad());
}
