// The gated delta rule on its kernels, as one autograd function: it keeps its operands, and the backward pass makes the
// states again.
#include <utility>

#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/primitives/delta_rule.hpp"
#include "exec/stage/primitives/kernel_table.hpp"

namespace plumb::exec {
namespace {

kernels::GatedDeltaShape shape_of(const at::Tensor& key, const at::Tensor& value) {
  return {
      .sequences = key.size(0) * key.size(1), .time = key.size(2), .key_dim = key.size(3), .value_dim = value.size(3)};
}

// Of a tensor without elements none: autograd functions take no undefined ones.
const float* floats_in(const at::Tensor& x) { return x.numel() > 0 ? x.const_data_ptr<float>() : nullptr; }

at::Tensor in_floats(const at::Tensor& x) { return x.to(at::kFloat).contiguous(); }

struct DeltaRule : Function<DeltaRule> {
  // Gives the output and the last state.
  static variable_list forward(AutogradContext* context, const Variable& query, const Variable& key,
                               const Variable& value, const Variable& beta, const Variable& log_decay,
                               const Variable& first_state, at::ScalarType type) {
    const at::Tensor q = query.to(type).contiguous();
    const at::Tensor k = key.to(type).contiguous();
    const at::Tensor v = value.to(type).contiguous();
    const at::Tensor b = in_floats(beta);
    const at::Tensor g = in_floats(log_decay);
    const at::Tensor s = in_floats(first_state);
    context->save_for_backward({q, k, v, b, g, s});
    at::Tensor output = at::empty_like(v);
    at::Tensor last = at::empty({k.size(0), k.size(1), k.size(3), v.size(3)}, b.options());
    kernel_table(q)->gated_delta_forward(shape_of(k, v), kernel_type(q),
                                         {.query = q.const_data_ptr(),
                                          .key = k.const_data_ptr(),
                                          .value = v.const_data_ptr(),
                                          .beta = floats_in(b),
                                          .log_decay = floats_in(g),
                                          .first_state = floats_in(s),
                                          .output = output.mutable_data_ptr(),
                                          .last_state = last.mutable_data_ptr<float>()},
                                         current_stream(q));
    return {output, last};
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& v = saved[2];
    const at::Tensor& first = saved[5];
    const KernelTable& table = *kernel_table(q);
    const kernels::GatedDeltaShape shape = shape_of(k, v);
    const at::Tensor dy = output_gradients[0].contiguous();
    const at::Tensor dlast = output_gradients[1].contiguous();
    const at::Tensor workspace =
        at::empty({table.gated_delta_workspace(shape, kernel_type(q))}, q.options().dtype(at::kByte));
    variable_list made = {at::empty_like(q), at::empty_like(k), at::empty_like(v), at::empty_like(saved[3]),
                          at::empty_like(saved[4])};
    at::Tensor dfirst = at::empty_like(first);
    table.gated_delta_backward(shape, kernel_type(q),
                               {.query = q.const_data_ptr(),
                                .key = k.const_data_ptr(),
                                .value = v.const_data_ptr(),
                                .beta = floats_in(saved[3]),
                                .log_decay = floats_in(saved[4]),
                                .first_state = floats_in(first),
                                .doutput = dy.const_data_ptr(),
                                .dlast_state = floats_in(dlast),
                                .dquery = made[0].mutable_data_ptr(),
                                .dkey = made[1].mutable_data_ptr(),
                                .dvalue = made[2].mutable_data_ptr(),
                                .dbeta = made[3].mutable_data_ptr<float>(),
                                .dlog_decay = made[4].mutable_data_ptr<float>(),
                                .dfirst_state = dfirst.numel() > 0 ? dfirst.mutable_data_ptr<float>() : nullptr,
                                .workspace = workspace.mutable_data_ptr()},
                               current_stream(q));
    for (at::Tensor& gradient : made) gradient = gradient.to(at::kFloat);
    made.push_back(std::move(dfirst));
    made.emplace_back();
    return made;
  }
};

}  // namespace

at::Tensor delta_rule_on_kernels(const DeltaInput& input, const DeltaChoice& choice, at::Tensor* carried) {
  const kernels::GatedDeltaShape shape = shape_of(input.key, input.value);
  if (!kernel_table(input.query)->gated_delta_fits(shape, kernel_type(choice.type))) {
    return delta_rule(input, choice.chunk, carried);
  }
  const bool begins = carried == nullptr || !carried->defined();
  const at::Tensor first = begins ? at::empty({0}, input.beta.options().requires_grad(false)) : *carried;
  variable_list made =
      DeltaRule::apply(input.query, input.key, input.value, input.beta, input.log_decay, first, choice.type);
  if (carried != nullptr) *carried = std::move(made[1]);
  return std::move(made[0]);
}

}  // namespace plumb::exec
