#include "exec/stage/lora.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "exec/stage/capsules.hpp"
#include "exec/stage/expert_rows.hpp"
#include "exec/stage/primitives.hpp"

namespace plumb::exec {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

LoraMatrices matrices_of(const Weight& weight, const WeightPtr& bias, const Adapter& adapter) {
  return {.weight = weight.value,
          .bias = bias ? std::optional<at::Tensor>(bias->value) : std::nullopt,
          .a = adapter.a->value,
          .b = adapter.b->value,
          .scale = adapter.scale};
}

// The adapters are no variables of autograd's, and x may have no gradient: so both take an anchor.
struct AdaptedLinear : Function<AdaptedLinear> {
  static Variable forward(AutogradContext* context, const Variable& /*anchor*/, const Variable& x,
                          const WeightPtr& weight, const WeightPtr& bias, const AdapterPtr& adapter,
                          const WeightQueuePtr& queue) {
    LoraForward made = primitives_for(x).lora(x, matrices_of(*weight, bias, *adapter));
    context->save_for_backward({x, made.narrow});
    context->saved_data["below"] = x.requires_grad();
    keep(context, "weight", weight);
    keep(context, "adapter", adapter);
    keep(context, "queue", queue);
    return made.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const auto adapter = kept<Adapter>(context, "adapter");
    const Primitives& compute = primitives_for(x);
    LoraBackward made = compute.lora_backward(output_gradients[0].contiguous(), saved[1],
                                              matrices_of(*kept<Weight>(context, "weight"), {}, *adapter),
                                              context->saved_data["below"].toBool());
    kept<WeightQueue>(context, "queue")
        ->push([x, adapter, dnarrow = made.dnarrow, add_to_b = std::move(made.add_to_b),
                add_to_a = compute.lora_add_to_a] {
          add_to_a(adapter->a->gradient, dnarrow, x);
          add_to_b(adapter->b->gradient);
        });
    return {Variable(), made.dx, Variable(), Variable(), Variable(), Variable()};
  }
};

struct AdaptedExpertLinear : Function<AdaptedExpertLinear> {
  static Variable forward(AutogradContext* context, const Variable& /*anchor*/, const Variable& x,
                          const WeightPtr& weight, const AdapterPtr& adapter,
                          const std::vector<std::int64_t>& rows_of_expert, const WeightQueuePtr& queue) {
    const at::Tensor& a = adapter->a->value;
    at::Tensor y = at::empty({x.size(0), weight->value.size(1)}, x.options());
    at::Tensor narrow = at::empty({x.size(0), a.size(1)}, x.options());
    for_each_expert(rows_of_expert, [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
      at::Tensor part = y.narrow(0, first, count);
      at::Tensor narrow_part = narrow.narrow(0, first, count);
      const at::Tensor input = x.narrow(0, first, count);
      at::mm_out(part, input, weight->value.select(0, expert).t());
      at::mm_out(narrow_part, input, a.select(0, expert).t());
      part.addmm_(narrow_part.mul_(adapter->scale), adapter->b->value.select(0, expert).t());
    });
    context->save_for_backward({x, narrow});
    context->saved_data["below"] = x.requires_grad();
    context->saved_data["rows"] = rows_of_expert;
    keep(context, "weight", weight);
    keep(context, "adapter", adapter);
    keep(context, "queue", queue);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& narrow = saved[1];
    const auto weight = kept<Weight>(context, "weight");
    const auto adapter = kept<Adapter>(context, "adapter");
    const std::vector<std::int64_t> rows_of_expert = context->saved_data["rows"].toIntVector();
    const bool below = context->saved_data["below"].toBool();
    const at::Tensor dy = output_gradients[0].contiguous();
    at::Tensor dnarrow = at::empty_like(narrow);
    at::Tensor dx = below ? at::empty_like(x) : at::Tensor();
    for_each_expert(rows_of_expert, [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
      at::Tensor narrow_part = dnarrow.narrow(0, first, count);
      const at::Tensor output = dy.narrow(0, first, count);
      at::mm_out(narrow_part, output, adapter->b->value.select(0, expert));
      narrow_part.mul_(adapter->scale);
      if (!below) return;
      at::Tensor part = dx.narrow(0, first, count);
      at::mm_out(part, output, weight->value.select(0, expert));
      part.addmm_(narrow_part, adapter->a->value.select(0, expert));
    });
    kept<WeightQueue>(context, "queue")->push([x, narrow, dy, dnarrow, adapter, rows_of_expert] {
      for_each_expert(rows_of_expert, [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
        const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
        accumulate_product(adapter->a->gradient.select(0, expert), part(dnarrow), part(x));
        accumulate_product(adapter->b->gradient.select(0, expert), part(dy), part(narrow));
      });
    });
    return {Variable(), dx, Variable(), Variable(), Variable(), Variable()};
  }
};

}  // namespace

AdapterPtr adapter_of(const ModuleContext& context, const std::string& name) {
  const std::string owner = context.prefix + name;
  const WeightPtr a = context.weights.take_if_there(owner + ".lora_a.weight");
  if (!a) return {};
  auto adapter = c10::make_intrusive<Adapter>();
  adapter->a = a;
  adapter->b = context.weights.take_if_there(owner + ".lora_b.weight");
  adapter->scale = context.lora_scale;
  return adapter;
}

at::Tensor adapted_linear(const at::Tensor& x, const WeightPtr& weight, const WeightPtr& bias,
                          const AdapterPtr& adapter, const WeightQueuePtr& queue) {
  return AdaptedLinear::apply(anchor_of(*weight), x, weight, bias, adapter, queue);
}

at::Tensor adapted_expert_linear(const at::Tensor& x, const WeightPtr& weight, const AdapterPtr& adapter,
                                 const std::vector<std::int64_t>& rows_of_expert, const WeightQueuePtr& queue) {
  return AdaptedExpertLinear::apply(anchor_of(*weight), x, weight, adapter, rows_of_expert, queue);
}

at::Tensor merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  const auto type = wide_type(weight.scalar_type());
  return weight.to(type) + at::matmul(b.to(type), a.to(type)) * scale;
}

}  // namespace plumb::exec
