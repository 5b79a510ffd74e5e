#include "exec/stage/modules/lora.hpp"

#include <utility>

#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/primitives/expert_products.hpp"
#include "exec/stage/primitives/primitives.hpp"

namespace plumb::exec {
namespace {

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
    const at::Tensor x = without_history(saved[0]);
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
                          const WeightPtr& weight, const AdapterPtr& adapter, const ExpertRowsPtr& rows,
                          const WeightQueuePtr& queue) {
    const at::Tensor narrow = expert_product(x, adapter->a->value.transpose(1, 2), *rows).mul_(adapter->scale);
    at::Tensor y = expert_product(x, weight->value.transpose(1, 2), *rows);
    add_expert_product(y, narrow, adapter->b->value.transpose(1, 2), *rows);
    context->save_for_backward({x, narrow});
    context->saved_data["below"] = x.requires_grad();
    keep(context, "rows", rows);
    keep(context, "weight", weight);
    keep(context, "adapter", adapter);
    keep(context, "queue", queue);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x = without_history(saved[0]);
    const at::Tensor& narrow = saved[1];
    const auto rows = kept<ExpertRows>(context, "rows");
    const auto adapter = kept<Adapter>(context, "adapter");
    const at::Tensor dy = output_gradients[0].contiguous();
    const at::Tensor dnarrow = expert_product(dy, adapter->b->value, *rows).mul_(adapter->scale);
    at::Tensor dx;
    if (context->saved_data["below"].toBool()) {
      dx = expert_product(dy, kept<Weight>(context, "weight")->value, *rows);
      add_expert_product(dx, dnarrow, adapter->a->value, *rows);
    }
    kept<WeightQueue>(context, "queue")->push([x, narrow, dy, dnarrow, adapter, rows] {
      accumulate_expert_product(adapter->a->gradient, dnarrow, x, *rows);
      accumulate_expert_product(adapter->b->gradient, dy, narrow, *rows);
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
                                 const ExpertRowsPtr& rows, const WeightQueuePtr& queue) {
  return AdaptedExpertLinear::apply(anchor_of(*weight), x, weight, adapter, rows, queue);
}

at::Tensor merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  const auto type = wide_type(weight.scalar_type());
  return weight.to(type) + at::matmul(b.to(type), a.to(type)) * scale;
}

}  // namespace plumb::exec
