#include "exec/stage/tensor/grid_products.hpp"

#include <utility>

#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/vocabulary/local_indices.hpp"

namespace plumb::exec {
namespace {

at::Tensor gathered(const GridWeight& weight, const LocalMove& move) {
  return weight.group->moved(weight.stored->value, move);
}

struct GridLinear : Function<GridLinear> {
  static Variable forward(AutogradContext* context, const Variable& x, const GridWeightPtr& weight,
                          const WeightPtr& bias, const WeightQueuePtr& queue, const KeptPartPtr& part) {
    const at::Tensor all = gathered(*weight, weight->forward);
    const bool is_kept = weight->forward && !weight->again;
    context->save_for_backward({part ? at::Tensor() : x, is_kept ? all : at::Tensor()});
    keep(context, "part", part);
    keep(context, "weight", weight);
    keep(context, "bias", bias);
    keep(context, "queue", queue);
    return at::linear(x, all, bias ? std::optional<at::Tensor>(bias->value) : std::nullopt);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto weight = kept<GridWeight>(context, "weight");
    const auto bias = kept<Weight>(context, "bias");
    const auto part = kept<KeptPart>(context, "part");
    const at::Tensor dy = output_gradients[0].contiguous();
    const at::Tensor x = part ? at::Tensor() : without_history(saved[0]);
    kept<WeightQueue>(context, "queue")->push([x, part, dy, weight, bias] {
      add_product(*weight, rows(dy), rows(part ? part->gathered() : x));
      if (bias) accumulate_rows(*bias, dy);
    });
    const at::Tensor all = saved[1].defined() ? saved[1] : gathered(*weight, weight->again);
    return {at::matmul(dy, all), Variable(), Variable(), Variable(), Variable()};
  }

 private:
  // What is scattered is made whole, in the type of the training, and so that the parts of its ranks lie one behind the
  // other: by columns as its transpose. Else there would be two of it.
  static void add_product(const GridWeight& weight, const at::Tensor& dy, const at::Tensor& x) {
    if (!weight.scattered) return accumulate_product(weight.stored->gradient, dy, x);
    const bool by_columns = weight.scattered.dimension == 1;
    const at::Tensor made = by_columns ? at::mm(x.t(), dy).t() : at::mm(dy.t(), x);
    accumulate(*weight.stored, weight.group->moved(made, weight.scattered));
  }
};

// Token ids have no gradient, so it takes an anchor. I moves nothing: W alone reads the gradient.
struct GridEmbed : Function<GridEmbed> {
  static Variable forward(AutogradContext* context, const Variable& /*anchor*/, const at::Tensor& tokens,
                          const GridWeightPtr& table, std::int64_t first_row, const CrossingPtr& exit,
                          const WeightQueuePtr& queue) {
    const at::Tensor all = gathered(*table, table->forward);
    const auto [index, mine] = local_indices(tokens, first_row, all.size(0));
    context->save_for_backward({index, mine});
    context->saved_data["rows"] = all.size(0);
    keep(context, "table", table);
    keep(context, "exit", exit);
    keep(context, "queue", queue);
    return crossed(at::embedding(all, index).mul_(mine.unsqueeze(-1)), exit);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto table = kept<GridWeight>(context, "table");
    const KeptPartPtr part = kept_part(output_gradients[0], kept<Crossing>(context, "exit"));
    const at::Tensor dy = part ? at::Tensor() : output_gradients[0];
    const std::int64_t count = context->saved_data["rows"].toInt();
    kept<WeightQueue>(context, "queue")->push([index = saved[0], mine = saved[1], part, dy, table, count] {
      const at::Tensor& all = part ? part->gathered() : dy;
      const at::Tensor wide = all.to(table->stored->gradient.scalar_type()).mul(mine.unsqueeze(-1));
      at::Tensor made = at::zeros({count, wide.size(-1)}, wide.options());
      made.index_add_(0, index.flatten(), rows(wide));
      accumulate(*table->stored, table->group->moved(made.to(all.scalar_type()), table->scattered));
    });
    return {Variable(), Variable(), Variable(), Variable(), Variable(), Variable()};
  }
};

}  // namespace

GridWeightPtr grid_weight(const Divided& divided, const std::string& name, WeightPtr stored) {
  auto weight = c10::make_intrusive<GridWeight>();
  weight->stored = std::move(stored);
  weight->group = divided.group;
  weight->forward = divided.find(Phase::forward, Role::weight, name);
  weight->again = divided.find(Phase::input_gradient, Role::weight, name);
  weight->scattered = divided.find(Phase::weight_gradient, Role::weight_gradient, name);
  return weight;
}

at::Tensor grid_linear(const at::Tensor& x, const GridWeightPtr& weight, const WeightPtr& bias,
                       const WeightQueuePtr& queue, const KeptPartPtr& part) {
  return GridLinear::apply(x, weight, bias, queue, part);
}

at::Tensor grid_embed(const at::Tensor& tokens, const GridWeightPtr& table, std::int64_t first_row,
                      const CrossingPtr& exit, const WeightQueuePtr& queue) {
  const Weight& stored = *table->stored;
  return GridEmbed::apply(anchor_of(stored, stored.is_trained()), tokens, table, first_row, exit, queue);
}

}  // namespace plumb::exec
