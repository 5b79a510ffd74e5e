// The stages' functions on the kernels of kernels/: LibTorch gives memory and matrix products.
#include <ATen/ATen.h>

#include "exec/stage/primitives/kernel_table.hpp"
#include "exec/stage/primitives/primitives.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {
namespace {

at::Tensor floats_beside(const at::Tensor& x, at::IntArrayRef shape) {
  return at::empty(shape, x.options().dtype(at::kFloat));
}
at::Tensor integers_beside(const at::Tensor& x, at::IntArrayRef shape) {
  return at::empty(shape, x.options().dtype(at::kInt));
}

// What a kernel reads; of an undefined tensor null.
const void* in(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
const float* floats_in(const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }
float* floats_out(const at::Tensor& x) { return x.mutable_data_ptr<float>(); }
void* out(const at::Tensor& x) { return x.mutable_data_ptr(); }

kernels::RmsNormShape norm_shape(const at::Tensor& x, double epsilon = 0) {
  return {.rows = x.numel() / x.size(-1), .columns = x.size(-1), .epsilon = epsilon};
}

NormForward rms_norm(const at::Tensor& given, const at::Tensor& residual, const at::Tensor& weight, double epsilon) {
  const at::Tensor x = given.contiguous();
  const at::Tensor beside = residual.defined() ? residual.contiguous() : at::Tensor();
  const kernels::RmsNormShape shape = norm_shape(x, epsilon);
  NormForward made{
      .h = beside.defined() ? at::empty_like(x) : x, .y = at::empty_like(x), .scale = floats_beside(x, {shape.rows})};
  kernel_table(x)->rms_norm_forward(shape, kernel_type(x),
                                    {.x = in(x),
                                     .residual = in(beside),
                                     .weight = in(weight),
                                     .h = beside.defined() ? out(made.h) : nullptr,
                                     .y = out(made.y),
                                     .inverse_rms = floats_out(made.scale)},
                                    current_stream(x));
  return made;
}

// The kernel leaves the weight's parts in any case; what is not trained drops them.
NormBackward rms_norm_backward(const NormForward& made, const at::Tensor& weight, const at::Tensor& output_gradient,
                               const at::Tensor& beside, bool for_weight) {
  const at::Tensor dy = output_gradient.contiguous();
  const at::Tensor dh = beside.defined() ? beside.contiguous() : at::Tensor();
  const at::Tensor h = made.h.contiguous();
  const kernels::RmsNormShape shape = norm_shape(dy);
  const KernelTable& table = *kernel_table(dy);
  const at::Tensor parts = floats_beside(dy, {table.rms_norm_part_count(shape), shape.columns});
  at::Tensor dx = at::empty_like(dy);
  table.rms_norm_input_gradient(shape, kernel_type(dy),
                                {.dy = in(dy),
                                 .h = in(h),
                                 .weight = in(weight),
                                 .inverse_rms = floats_in(made.scale),
                                 .dh = in(dh),
                                 .dx = out(dx),
                                 .parts = floats_out(parts)},
                                current_stream(dy));
  return {.dx = dx, .weight_parts = for_weight ? parts : at::Tensor()};
}

void add_parts(const at::Tensor& gradient, const at::Tensor& parts) {
  kernel_table(gradient)->rms_norm_weight_gradient(gradient.numel(), parts.size(0), floats_in(parts),
                                                   floats_out(gradient), current_stream(gradient));
}

kernels::SwigluShape swiglu_shape(const at::Tensor& x) {
  return {.rows = x.numel() / x.size(-1), .columns = x.size(-1), .stride = x.size(-1)};
}

at::Tensor gated(const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor gate = left.contiguous();
  const at::Tensor up = right.contiguous();
  at::Tensor y = at::empty_like(gate);
  kernel_table(gate)->swiglu_forward(swiglu_shape(gate), kernel_type(gate),
                                     {.gate = in(gate), .up = in(up), .y = out(y)}, current_stream(gate));
  return y;
}

std::pair<at::Tensor, at::Tensor> gated_backward(const at::Tensor& output_gradient, const at::Tensor& left,
                                                 const at::Tensor& right) {
  const at::Tensor dy = output_gradient.contiguous();
  const at::Tensor gate = left.contiguous();
  const at::Tensor up = right.contiguous();
  at::Tensor dgate = at::empty_like(gate);
  at::Tensor dup = at::empty_like(up);
  kernel_table(gate)->swiglu_backward(
      swiglu_shape(gate), kernel_type(gate),
      {.dy = in(dy), .gate = in(gate), .up = in(up), .dgate = out(dgate), .dup = out(dup)}, current_stream(gate));
  return {dgate, dup};
}

at::Tensor rotate(const at::Tensor& given, const RotaryTables& tables, bool backwards) {
  const at::Tensor x = given.contiguous();  // [batch, time, heads, size]
  const std::int64_t row = x.size(2) * x.size(3);
  at::Tensor y = at::empty_like(x);
  kernel_table(x)->rotary({.tokens = x.size(0) * x.size(1),
                           .time = x.size(1),
                           .heads = x.size(2),
                           .size = x.size(3),
                           .half = tables.cosine.size(1),
                           .x_stride = row,
                           .y_stride = row,
                           .interleaved = tables.interleaved},
                          kernel_type(x),
                          {.x = in(x),
                           .cosine = floats_in(tables.cosine.contiguous()),
                           .sine = floats_in(tables.sine.contiguous()),
                           .y = out(y),
                           .backwards = backwards},
                          current_stream(x));
  return y;
}

kernels::MoeShape moe_shape(const Dispatch& plan, std::int64_t hidden) {
  return {.tokens = plan.tokens, .hidden = hidden, .top_k = plan.row_of.size(1), .experts = plan.rows->experts()};
}

Dispatch dispatch(const at::Tensor& chosen, std::int64_t experts) {
  const at::Tensor offsets = integers_beside(chosen, {experts + 1});
  Dispatch plan{.tokens = chosen.size(0),
                .choice = {},
                .token = {},
                .row_of = integers_beside(chosen, chosen.sizes()),
                .rows = c10::make_intrusive<ExpertRows>(offsets.narrow(0, 1, experts))};
  const kernels::MoeShape shape = moe_shape(plan, 1);
  const KernelTable& table = *kernel_table(chosen);
  const at::Tensor expert_of = chosen.to(at::kInt).contiguous();
  const at::Tensor workspace = integers_beside(chosen, {table.moe_workspace(shape)});
  table.moe_plan(shape,
                 {.expert_of = expert_of.const_data_ptr<std::int32_t>(),
                  .row_of = plan.row_of.mutable_data_ptr<std::int32_t>(),
                  .offsets = offsets.mutable_data_ptr<std::int32_t>(),
                  .workspace = workspace.mutable_data_ptr<std::int32_t>()},
                 current_stream(chosen));
  return plan;
}

const std::int32_t* rows_of(const Dispatch& plan) { return plan.row_of.const_data_ptr<std::int32_t>(); }

at::Tensor permute(const at::Tensor& given, const Dispatch& plan) {
  const at::Tensor x = given.contiguous();
  at::Tensor rows = at::empty({plan.row_of.numel(), x.size(1)}, x.options());
  kernel_table(x)->moe_permute(moe_shape(plan, x.size(1)), kernel_type(x),
                               {.x = in(x), .row_of = rows_of(plan), .rows = out(rows)}, current_stream(x));
  return rows;
}

at::Tensor summed_rows(const at::Tensor& rows, const at::Tensor& share, const Dispatch& plan) {
  at::Tensor y = at::empty({plan.tokens, rows.size(1)}, rows.options());
  kernel_table(rows)->moe_unpermute(
      moe_shape(plan, rows.size(1)), kernel_type(rows),
      {.rows = in(rows), .row_of = rows_of(plan), .weight = floats_in(share), .y = out(y)}, current_stream(rows));
  return y;
}

at::Tensor permute_backward(const at::Tensor& drows, const Dispatch& plan) {
  return summed_rows(drows.contiguous(), {}, plan);
}

at::Tensor unpermute(const at::Tensor& rows, const at::Tensor& share, const Dispatch& plan) {
  return summed_rows(rows.contiguous(), share.to(at::kFloat).contiguous(), plan);
}

std::pair<at::Tensor, at::Tensor> unpermute_backward(const at::Tensor& output_gradient, const at::Tensor& rows,
                                                     const at::Tensor& share, const Dispatch& plan) {
  const at::Tensor dy = output_gradient.contiguous();
  const at::Tensor made = rows.contiguous();
  const at::Tensor weight = share.to(at::kFloat).contiguous();
  at::Tensor drows = at::empty_like(made);
  const at::Tensor dweight = at::empty_like(weight);
  kernel_table(dy)->moe_unpermute_backward(moe_shape(plan, dy.size(1)), kernel_type(dy),
                                           {.dy = in(dy),
                                            .rows = in(made),
                                            .row_of = rows_of(plan),
                                            .weight = floats_in(weight),
                                            .drows = out(drows),
                                            .dweight = floats_out(dweight)},
                                           current_stream(dy));
  return {drows, dweight.to(share.scalar_type())};
}

kernels::LoraShape lora_shape(const at::Tensor& x, std::int64_t rank) {
  return {.tokens = x.size(0), .columns = x.size(1), .rank = rank, .x_stride = x.size(1), .z_stride = rank};
}

// y = [bias +] narrow · Bᵀ first, which only writes; the large product then adds to it in its epilogue. The other way
// round, the small product would read and write y once more.
at::Tensor product_onto(const at::Tensor& small, const at::Tensor& x, const at::Tensor& matrix) {
  return at::Tensor(small).addmm_(x, matrix);
}

LoraForward lora(const at::Tensor& given, const LoraMatrices& m) {
  const at::Tensor x = rows(given).contiguous();
  at::Tensor narrow = at::empty({x.size(0), m.a.size(0)}, x.options());
  kernel_table(x)->lora_project(lora_shape(x, m.a.size(0)), kernel_type(x),
                                {.x = in(x), .factor = in(m.a), .z = out(narrow), .scale = m.scale}, current_stream(x));
  const at::Tensor small = m.bias ? at::addmm(*m.bias, narrow, m.b.t()) : at::mm(narrow, m.b.t());
  std::vector<std::int64_t> sizes = given.sizes().vec();
  sizes.back() = m.b.size(0);
  return {.y = product_onto(small, x, m.weight.t()).view(sizes), .narrow = std::move(narrow)};
}

// One pass over dy for dz and B's gradient, which is left in parts for W: so W needs neither dy nor narrow.
LoraBackward lora_backward(const at::Tensor& output_gradient, const at::Tensor& narrow, const LoraMatrices& m,
                           bool for_input) {
  const at::Tensor dy = rows(output_gradient).contiguous();
  const kernels::LoraShape shape = lora_shape(dy, narrow.size(1));
  const KernelTable& table = *kernel_table(dy);
  const at::Tensor factor = m.b.t().contiguous();
  const at::Tensor parts = floats_beside(dy, {table.lora_part_count(shape), shape.rank, shape.columns});
  const at::Tensor workspace = floats_beside(dy, {table.lora_backward_workspace(shape)});
  LoraBackward made{.dx = {}, .dnarrow = at::empty_like(narrow)};
  table.lora_backward(shape, kernel_type(dy),
                      {.x = in(dy),
                       .factor = in(factor),
                       .z = in(narrow),
                       .dz = out(made.dnarrow),
                       .parts = floats_out(parts),
                       .workspace = floats_out(workspace),
                       .scale = m.scale},
                      current_stream(dy));
  made.add_to_b = [parts](const at::Tensor& gradient) {
    const at::Tensor turned = at::zeros({gradient.size(1), gradient.size(0)}, gradient.options());
    kernel_table(gradient)->lora_add_parts(turned.numel(), parts.size(0), floats_in(parts), floats_out(turned),
                                           current_stream(gradient));
    at::Tensor(gradient).add_(turned.t());
  };
  if (for_input) {
    std::vector<std::int64_t> sizes = output_gradient.sizes().vec();
    sizes.back() = m.a.size(1);
    made.dx = product_onto(at::mm(made.dnarrow, m.a), dy, m.weight).view(sizes);
  }
  return made;
}

void lora_add_to_a(const at::Tensor& gradient, const at::Tensor& dnarrow, const at::Tensor& given) {
  const at::Tensor x = rows(given).contiguous();
  const kernels::LoraShape shape = lora_shape(x, dnarrow.size(1));
  const KernelTable& table = *kernel_table(x);
  const at::Tensor parts = floats_beside(x, {table.lora_part_count(shape), shape.rank, shape.columns});
  table.lora_gradient(shape, kernel_type(x),
                      {.z = in(dnarrow), .x = in(x), .parts = floats_out(parts), .gradient = floats_out(gradient)},
                      current_stream(x));
}

void adamw(const AdamW& settings, std::int64_t step, std::span<const AdamWState> states) {
  if (states.empty()) return;
  std::vector<kernels::AdamWTensor> tensors;
  kernels::Type copies = kernels::Type::fp32;
  for (const AdamWState& s : states) {
    tensors.push_back({.size = s.master.numel(),
                       .gradient = floats_in(s.gradient),
                       .weight = floats_out(s.master),
                       .first_moment = floats_out(s.first_moment),
                       .second_moment = floats_out(s.second_moment),
                       .copy = s.copy.defined() ? out(s.copy) : nullptr});
    if (s.copy.defined()) copies = kernel_type(s.copy);  // one compute type in a stage
  }
  const at::Tensor& any = states.front().master;
  kernel_table(any)->adamw({.rate = settings.rate,
                            .beta1 = settings.beta1,
                            .beta2 = settings.beta2,
                            .epsilon = settings.epsilon,
                            .decay = settings.decay,
                            .step = step},
                           copies, tensors, current_stream(any));
}

at::Tensor exact_squares(std::span<const at::Tensor> tensors) {
  const at::Tensor& any = tensors.front();
  const KernelTable& table = *kernel_table(any);
  std::vector<kernels::SquaresTensor> given;
  for (const at::Tensor& tensor : tensors) given.push_back({.values = floats_in(tensor), .size = tensor.numel()});
  const auto words = any.options().dtype(at::kLong);
  const at::Tensor workspace = at::empty({table.exact_squares_workspace()}, words);
  at::Tensor numbers = at::empty({std::tuple_size_v<kernels::ExactSquares::Numbers>}, words);
  table.exact_squares(given, static_cast<std::uint64_t*>(out(workspace)), static_cast<std::uint64_t*>(out(numbers)),
                      current_stream(any));
  return numbers;
}

}  // namespace

const Primitives& kernel_primitives() {
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
                              .delta_rule = delta_rule_on_kernels,
                              .lora = lora,
                              .lora_backward = lora_backward,
                              .lora_add_to_a = lora_add_to_a,
                              .adamw = adamw,
                              .exact_squares = exact_squares};
  return all;
}

}  // namespace plumb::exec
